"""Interpolation from observations to grid points, behind one small interface."""
