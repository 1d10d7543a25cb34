//! Properties of every estimate, whatever the model, device and strategy.

use proptest::prelude::*;
use saturn_estimate::{
    Attention, Constants, Device, HostState, Kernels, Optimizer, Precision, Ratio, Shape, Sharding,
    Strategy as Layout, Verdict, Workload, choose, estimate, memory,
};

fn shapes() -> impl Strategy<Value = Shape> {
    (2u32..=12, 4u32..=40, 0usize..3).prop_map(|(layers, heads, kind)| {
        let (layers, hidden) = (4 * layers, 128 * heads);
        let config = match kind {
            0 => format!(
                r#"{{"model_type": "gpt2", "n_layer": {layers}, "n_embd": {hidden}, "n_head": {heads}}}"#
            ),
            1 => format!(
                r#"{{"model_type": "llama", "num_hidden_layers": {layers}, "hidden_size": {hidden},
                "num_attention_heads": {heads}, "intermediate_size": {}, "vocab_size": 32000}}"#,
                3 * hidden
            ),
            _ => format!(
                r#"{{"model_type": "bert", "num_hidden_layers": {layers}, "hidden_size": {hidden},
                "num_attention_heads": {heads}, "intermediate_size": {}}}"#,
                4 * hidden
            ),
        };
        Shape::from_config(&config).unwrap()
    })
}

fn workloads() -> impl Strategy<Value = Workload> {
    let precision = prop::sample::select(&Precision::ALL[..]);
    let optimizer = prop::sample::select(&Optimizer::ALL[..]);
    (1u32..=64, 1u32..=8, precision, optimizer, any::<bool>(), any::<bool>()).prop_map(
        |(batch, length, (precision, _), (optimizer, _), flash, fused)| Workload {
            batch,
            sequence: 64 * length,
            precision,
            optimizer,
            attention: if flash { Attention::Flash } else { Attention::Eager },
            kernels: if fused { Kernels::Fused } else { Kernels::Eager },
        },
    )
}

fn devices() -> impl Strategy<Value = Device> {
    prop::sample::select(Device::all())
}

fn placements() -> impl Strategy<Value = Vec<u32>> {
    prop::sample::select(vec![
        vec![1],
        vec![2],
        vec![4],
        vec![8],
        vec![8, 8],
        vec![2, 6],
        vec![8; 4],
    ])
}

proptest! {
    #[test]
    fn a_step_on_another_device_changes_within_the_bounds(
        shape in shapes(), workload in workloads(), from in devices(), to in devices(),
        gpus in prop::sample::select(vec![1u32, 2, 4])
    ) {
        let (constants, precision) = (Constants::default(), workload.precision);
        let Ok((chosen, _)) = choose(&shape, &workload, &from, &[gpus], &constants) else {
            return Ok(());
        };
        for choice in chosen {
            let technique = choice.strategy.technique();
            let Ok(there) = estimate(&shape, &workload, &to, &choice.strategy, &constants) else {
                prop_assert!(Ratio::of(&from, &to, Some(precision), technique, gpus).is_err());
                continue;
            };
            let ratio = there.model_s() / choice.estimate.model_s();
            for named in [Some(precision), None] {
                let Ok(bounds) = Ratio::of(&from, &to, named, technique, gpus) else {
                    prop_assert!(named.is_none());
                    continue;
                };
                prop_assert!(bounds.low.0 <= ratio * (1.0 + 1e-9), "{ratio} {bounds:?}");
                prop_assert!(bounds.high.0 >= ratio * (1.0 - 1e-9), "{ratio} {bounds:?}");
            }
        }
    }

    #[test]
    fn no_step_is_below_the_peak_and_its_terms_add_up(
        shape in shapes(), workload in workloads(), device in devices(), placement in placements()
    ) {
        let Ok((chosen, left_out)) =
            choose(&shape, &workload, &device, &placement, &Constants::default())
        else {
            prop_assert!(device.peak(workload.precision).is_err());
            return Ok(());
        };
        prop_assert!(!chosen.is_empty() || !left_out.is_empty());
        for choice in chosen {
            let said = choice.estimate;
            prop_assert!(said.step_s.value >= said.bound_s && said.step_s.low >= said.bound_s);
            prop_assert!(said.step_s.low <= said.step_s.value);
            prop_assert!(said.step_s.value < said.step_s.high && said.step_s.high.is_finite());
            prop_assert!(said.utilisation() > 0.0 && said.utilisation() <= 1.0);
            prop_assert!((said.model_s() / said.step_s.value - 1.0).abs() < 1e-9);
            prop_assert!(said.terms.iter().all(|term| term.seconds > 0.0));
            let bytes = said.memory;
            for part in [bytes.states, bytes.activations, bytes.reserve] {
                prop_assert!(part > 0.0 && part.is_finite());
            }
            prop_assert_eq!(choice.strategy.gpus(), placement.iter().sum::<u32>());
        }
    }

    #[test]
    fn more_devices_never_need_more_memory_each_under_sharding(
        shape in shapes(), workload in workloads(), is_kept in any::<bool>()
    ) {
        let sharding = if is_kept { Sharding::KeptGathered } else { Sharding::Everything };
        let bytes = |gpus: u32| {
            let plain = Layout::data_parallel(vec![gpus], workload.batch);
            let layout = Layout { sharding, ..plain };
            memory(&shape, &workload, &layout, &Constants::default()).total()
        };
        for gpus in [2, 3, 4, 8, 16] {
            prop_assert!(bytes(gpus + 1) <= bytes(gpus));
        }
    }

    #[test]
    fn a_larger_batch_never_takes_less_time_or_memory(
        shape in shapes(), workload in workloads(), device in devices(), placement in placements(),
        sharded in any::<bool>(), checkpointing in any::<bool>()
    ) {
        let sharding = if sharded { Sharding::Everything } else { Sharding::Nothing };
        let said = |batch: u32| {
            let workload = Workload { batch, ..workload };
            let plain = Layout::data_parallel(placement.clone(), batch);
            let layout = Layout { sharding, checkpointing, ..plain };
            estimate(&shape, &workload, &device, &layout, &Constants::default()).ok()
        };
        if let (Some(one), Some(other)) = (said(workload.batch), said(workload.batch + 1)) {
            // Where launches bound both, the seconds are equal but for the last bits of their sums.
            prop_assert!(one.step_s.value <= other.step_s.value * (1.0 + 1e-12));
            prop_assert!(one.memory.total() <= other.memory.total());
        }
    }

    #[test]
    fn checkpointing_takes_time_and_spares_memory(
        shape in shapes(), workload in workloads(), device in devices()
    ) {
        let said = |checkpointing: bool| {
            let plain = Layout::data_parallel(vec![1], workload.batch);
            let layout = Layout { checkpointing, ..plain };
            estimate(&shape, &workload, &device, &layout, &Constants::default()).ok()
        };
        if let (Some(without), Some(with)) = (said(false), said(true)) {
            prop_assert!(with.step_s.value > without.step_s.value);
            prop_assert!(with.memory.total() < without.memory.total());
        }
    }

    #[test]
    fn an_offloaded_model_needs_least_memory_and_most_time(
        shape in shapes(), workload in workloads(), device in devices()
    ) {
        let plain = Layout::data_parallel(vec![1], workload.batch);
        let ddp = Layout { checkpointing: true, ..plain };
        let offload = Layout { host: HostState::Layers, ..ddp.clone() };
        let said = |layout| estimate(&shape, &workload, &device, layout, &Constants::default());
        if let (Ok(ddp), Ok(offload)) = (said(&ddp), said(&offload)) {
            prop_assert!(offload.memory.states < ddp.memory.states);
            if workload.optimizer == Optimizer::AdamW {
                prop_assert!(offload.step_s.value > ddp.step_s.value);
            }
        }
    }
}

#[test]
fn a_strategy_that_cannot_be_is_refused_with_the_reason() {
    let shape = Shape::from_config(r#"{"model_type": "gpt2"}"#).unwrap();
    let workload = Workload {
        batch: 2,
        sequence: 128,
        precision: Precision::Fp32,
        optimizer: Optimizer::AdamW,
        attention: Attention::Flash,
        kernels: Kernels::Eager,
    };
    let told = |layout: Layout| layout.check(&shape, &workload).unwrap_err().to_string();
    let plain = |gpus| Layout::data_parallel(vec![gpus], 2);
    assert!(told(plain(4)).contains("a batch of 2 has no sample for each of 4 slices"));
    let tensor = Layout { data: 1, tensor: 8, ..plain(8) };
    assert_eq!(told(tensor), "12 attention heads can't be split over 8 devices");
    let pipeline = Layout { data: 1, pipeline: 16, ..plain(16) };
    assert_eq!(told(pipeline), "12 layers make no 16 stages");
    assert!(told(Layout { data: 2, ..plain(1) }).contains("are not 1 devices"));
}

#[test]
fn seven_billion_parameters_fit_eight_a100_only_split() {
    let shape = Shape::from_size("params=7e9,layers=32,hidden=4096").unwrap();
    let workload = Workload {
        batch: 16,
        sequence: 1024,
        precision: Precision::Bf16,
        optimizer: Optimizer::AdamW,
        attention: Attention::Flash,
        kernels: Kernels::Eager,
    };
    let device = Device::named("a100-40gb").unwrap();
    let (chosen, _) = choose(&shape, &workload, &device, &[8], &Constants::default()).unwrap();
    let verdict = |technique: &str| {
        chosen.iter().find(|one| one.strategy.technique() == technique).unwrap().verdict
    };
    assert_eq!(verdict("ddp"), Verdict::DoesNot);
    assert_eq!(verdict("fsdp"), Verdict::Fits);
}
