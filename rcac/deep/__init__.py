"""Deep robust constrained actor-critics: one trainer loop, whose parts (radius, switch, actor step) make the methods."""
