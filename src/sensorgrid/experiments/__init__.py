"""The papers' evaluations: specification in, table out, and what no policy can beat."""
