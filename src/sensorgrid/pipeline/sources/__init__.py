"""Where measurements come from; every source ends in the same rows (`sensorgrid.pipeline.schema`)."""
