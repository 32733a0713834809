"""Who is offered which delegation, when: the papers' answers and ours, behind one interface."""
