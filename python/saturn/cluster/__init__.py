"""Several machines, on Ray: finding nodes, an agent on each, and letters between them and a run.

Ray says which nodes there are and when one dies, starts an agent on each, and carries letters; what
they say, and what an agent does, is the runtime's (`saturn-runtime`, `cluster.rs`). Nothing here
plans. Ray is imported only where a cluster is asked for: `opening` sees to it.
"""
