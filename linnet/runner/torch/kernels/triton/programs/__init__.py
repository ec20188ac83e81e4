"""What runs on the device: Triton functions, each written for one shape of work. Imported only where Triton is there.

Pointers come first, then sizes and strides counted in elements, then what a compilation fixes. Weights are E4M3
[Out, In], row-major, so that `weight[o, i]` lies at `o * inner + i`; scales multiply.
"""
