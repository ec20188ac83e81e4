"""Linnet, a small typed language for neural networks, and Nest, a registry of models written in it."""
