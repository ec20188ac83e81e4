"""Entries compiled: Core IR rewritten for a device and policy, then a straight-line `torch.fx.GraphModule`."""
