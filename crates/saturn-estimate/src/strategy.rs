//! A layout of devices: how a model and its batch are spread over them.
//!
//! The numbers of data, tensor and pipeline ranks multiply to the number of devices. Tensor ranks
//! are innermost, so that a tensor group lies inside one node if possible.

use crate::error::EstimateError;
use crate::shape::Shape;
use crate::workload::Workload;

/// What data ranks split among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharding {
    /// Nothing: `ddp`.
    Nothing,
    /// Gradients and optimizer state; parameters are gathered after the optimizer's step: ZeRO-2.
    Gradients,
    /// Everything; a layer's parameters are gathered for each use: `fsdp`.
    Everything,
    /// Everything; gathered parameters are kept from the forward to the backward pass: `fsdp` with
    /// `reshard_after_forward=false`.
    KeptGathered,
}

/// What host memory holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostState {
    /// Nothing.
    Nothing,
    /// The optimizer's state, and the optimizer's step runs on the host: ZeRO-Offload.
    Optimizer,
    /// Also the parameters, which are streamed to the device layer by layer: `offload`.
    Layers,
}

/// A layout of devices, and where state is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strategy {
    /// The number of data ranks, which divide the batch.
    pub data: u32,
    /// The number of devices that share each layer.
    pub tensor: u32,
    /// The number of pipeline stages.
    pub pipeline: u32,
    /// What data ranks split among them.
    pub sharding: Sharding,
    /// What host memory holds.
    pub host: HostState,
    /// The number of samples in a micro-batch on one data rank.
    pub micro: u32,
    /// Whether layers keep only their inputs and run again in the backward pass.
    pub checkpointing: bool,
    /// The number of devices on each node.
    pub placement: Vec<u32>,
}

impl Strategy {
    /// Plain data parallelism, with each slice of the batch as one micro-batch.
    pub fn data_parallel(placement: Vec<u32>, batch: u32) -> Self {
        let data = placement.iter().sum::<u32>().max(1);
        Self {
            data,
            tensor: 1,
            pipeline: 1,
            sharding: Sharding::Nothing,
            host: HostState::Nothing,
            micro: batch.div_ceil(data),
            checkpointing: false,
            placement,
        }
    }

    /// Number of devices.
    pub fn gpus(&self) -> u32 {
        self.placement.iter().sum()
    }

    /// The technique with this layout.
    pub fn technique(&self) -> &'static str {
        let is_sharded = matches!(self.sharding, Sharding::Everything | Sharding::KeptGathered);
        match (self.pipeline > 1, self.tensor > 1, is_sharded && self.data > 1) {
            (false, false, _) if self.host == HostState::Layers => "offload",
            (false, false, _) if self.host == HostState::Optimizer => "zero-offload",
            (false, false, false) if self.sharding == Sharding::Gradients => "zero-2",
            (false, false, false) => "ddp",
            (false, false, true) => "fsdp",
            (false, true, false) => "tensor",
            (false, true, true) => "tensor+fsdp",
            (true, false, false) => "pipeline",
            (true, false, true) => "pipeline+fsdp",
            (true, true, false) => "pipeline+tensor",
            (true, true, true) => "pipeline+tensor+fsdp",
        }
    }

    /// The number of samples in the largest slice of the batch.
    pub(crate) fn slice(&self, workload: &Workload) -> u32 {
        workload.batch.div_ceil(self.data).max(1)
    }

    /// The number of micro-batches of a step on a data rank.
    pub(crate) fn num_micro(&self, workload: &Workload) -> u32 {
        self.slice(workload).div_ceil(self.micro.max(1))
    }

    /// The number of devices on the node that has the fewest.
    pub(crate) fn fewest(&self) -> u32 {
        self.placement.iter().copied().min().unwrap_or(1).max(1)
    }

    /// Checks that this layout can train this model.
    ///
    /// # Errors
    /// [`EstimateError::Unsuitable`] with the reason.
    pub fn check(&self, shape: &Shape, workload: &Workload) -> Result<(), EstimateError> {
        let unsuitable = |reason: String| Err(EstimateError::Unsuitable { reason });
        if self.data * self.tensor * self.pipeline != self.gpus() || self.gpus() == 0 {
            return unsuitable(format!(
                "{} data × {} tensor × {} pipeline ranks are not {} devices",
                self.data,
                self.tensor,
                self.pipeline,
                self.gpus()
            ));
        }
        if self.data > workload.batch {
            let (batch, data) = (workload.batch, self.data);
            return unsuitable(format!(
                "a batch of {batch} has no sample for each of {data} slices"
            ));
        }
        if self.pipeline > shape.layers {
            let (layers, stages) = (shape.layers, self.pipeline);
            return unsuitable(format!("{layers} layers make no {stages} stages"));
        }
        if !shape.heads.is_multiple_of(self.tensor) {
            let (heads, tensor) = (shape.heads, self.tensor);
            return unsuitable(format!(
                "{heads} attention heads can't be split over {tensor} devices"
            ));
        }
        Ok(())
    }
}
