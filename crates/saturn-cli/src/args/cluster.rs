//! Which nodes of a Ray cluster a run uses: the same options for every verb that trains.
//!
//! A sweep's file may name the cluster. So the code that reads the file checks whether there is a
//! cluster at all.

use serde::Serialize;

/// They reach Python under the names that `saturn.orchestrate` has for them.
#[derive(Debug, clap::Args, Serialize)]
pub(crate) struct ClusterArgs {
    /// Use the nodes of a Ray cluster: `auto`, or the address of its head.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) cluster: Option<String>,
    /// How many of the cluster's nodes to use; by default all nodes with free devices.
    #[arg(long, value_name = "N")]
    pub(crate) nodes: Option<u32>,
    /// How many GPUs, or CPU slots, of each node to use; by default all that are free.
    #[arg(long, value_name = "N")]
    pub(crate) gpus_per_node: Option<u32>,
    /// The network interface for ranks on several nodes, such as eth0; by default the interface by
    /// which nodes reach the node of this program.
    #[arg(long, value_name = "NAME")]
    pub(crate) network_interface: Option<String>,
}

impl ClusterArgs {
    /// The first option that needs a cluster, if these options name no cluster.
    pub(crate) fn without_cluster(&self) -> Option<&'static str> {
        let given = [
            ("--nodes", self.nodes.is_some()),
            ("--gpus-per-node", self.gpus_per_node.is_some()),
            ("--network-interface", self.network_interface.is_some()),
        ];
        let first = given.into_iter().find(|(_, is_given)| *is_given);
        first.map(|(name, _)| name).filter(|_| self.cluster.is_none())
    }
}
