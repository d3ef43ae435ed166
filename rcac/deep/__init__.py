"""Deep robust constrained actor-critics: one trainer loop, whose parts (radius, switch, actor step) make the methods.

`rcac.deep.act` needs NumPy alone; torch is loaded by `rcac.deep.trainer` and what it uses.
"""
