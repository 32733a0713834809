"""Policies: which broker is offered which cell, and when. The papers' and ours, behind one interface."""
