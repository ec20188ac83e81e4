"""`nest quantize`: a package's projections in few bits, as a package of its own."""
