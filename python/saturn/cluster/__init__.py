"""Several machines, on Ray: find nodes, start an agent on each, and carry letters to and from them.

Ray says which nodes exist and which die, starts an agent on each, and carries letters. The content
of letters, and what an agent does, belongs to the runtime (`saturn-runtime`, `cluster/`). Nothing
here plans. Ray is imported only if a cluster is requested: see `opening`.
"""
