"""The Common Expression Language as Kubernetes speaks it: rules of definitions, admission policies, match conditions.

Sources: cel-spec, "Language Definition"; Kubernetes, "Common Expression Language in Kubernetes" (its libraries and its bounds).
Pure: an expression is compiled once and run over values, within a budget of steps, without a clock and without the world.
"""
