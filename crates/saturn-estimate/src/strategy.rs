//! A layout of devices: how a model and its batch are spread over them.
//!
//! Data, tensor and pipeline ranks multiply to the number of devices. Tensor ranks are innermost: a
//! tensor group lies inside a node where it can.

use crate::error::EstimateError;
use crate::shape::Shape;
use crate::workload::Workload;

/// What is split over data ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharding {
    /// Nothing: `ddp`.
    Nothing,
    /// Gradients and optimizer state, gathered after the optimizer's step: ZeRO-2.
    Gradients,
    /// Everything; a layer's parameters are gathered for each use: `fsdp`.
    Everything,
    /// Everything; gathered parameters are kept from forward to backward: `fsdp` with
    /// `reshard_after_forward=false`.
    KeptGathered,
}

/// What is kept in host memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostState {
    /// Nothing.
    Nothing,
    /// The optimizer's state; its step runs on the host: ZeRO-Offload.
    Optimizer,
    /// Parameters too, which are streamed layer by layer: `offload`.
    Layers,
}

/// A layout of devices, and what is kept where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strategy {
    /// Slices of the batch.
    pub data: u32,
    /// Devices that share each layer.
    pub tensor: u32,
    /// Stages.
    pub pipeline: u32,
    /// What is split over data ranks.
    pub sharding: Sharding,
    /// What is kept in host memory.
    pub host: HostState,
    /// Samples of a micro-batch on one data rank.
    pub micro: u32,
    /// Layers keep only their inputs, and run again in the backward pass.
    pub checkpointing: bool,
    /// Devices on each node.
    pub placement: Vec<u32>,
}

impl Strategy {
    /// Plain data parallelism, with the whole slice of the batch at once.
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

    /// The technique that it is a layout of.
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

    /// Samples of the largest slice of the batch.
    pub(crate) fn slice(&self, workload: &Workload) -> u32 {
        workload.batch.div_ceil(self.data).max(1)
    }

    /// Micro-batches of a step on a data rank.
    pub(crate) fn num_micro(&self, workload: &Workload) -> u32 {
        self.slice(workload).div_ceil(self.micro.max(1))
    }

    /// Devices of the node that has fewest of them.
    pub(crate) fn fewest(&self) -> u32 {
        self.placement.iter().copied().min().unwrap_or(1).max(1)
    }

    /// Says what stands in the way of training this model so.
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
