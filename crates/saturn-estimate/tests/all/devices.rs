//! Tests of the table of devices.

use saturn_estimate::{Device, EstimateError, Precision};

#[test]
fn every_figure_has_a_source_and_a_value() {
    let devices = Device::all();
    assert!(devices.len() >= 10);
    for device in &devices {
        for (name, figure) in device.figures() {
            assert!(Device::source(&figure.source).is_some(), "{}: {name}", device.name);
            assert!(figure.value > 0.0, "{}: {name}", device.name);
        }
        let peaks = [Precision::Fp32, Precision::Tf32, Precision::Fp16, Precision::Bf16];
        let peaks: Vec<f64> = peaks.iter().filter_map(|one| device.peak(*one).ok()).collect();
        assert!(peaks.is_sorted(), "{}: fewer digits are never slower", device.name);
        assert!(device.link_bytes_s.value >= device.bus_bytes_s.value, "{}", device.name);
    }
}

#[test]
fn an_unknown_device_or_precision_is_told_which_there_are() {
    assert_eq!(Device::named("A100-40GB").unwrap().name, "a100-40gb");
    let error = Device::named("a100").unwrap_err();
    assert!(error.to_string().contains("a100-40gb, a100-80gb"), "{error}");
    let error = Device::named("v100-32gb").unwrap().peak(Precision::Bf16).unwrap_err();
    assert!(matches!(error, EstimateError::NoPrecision { .. }));
    assert_eq!(error.to_string(), "v100-32gb does not compute in bf16; it can fp32, fp16");
}

#[test]
fn a_device_is_known_by_the_name_that_torch_has_and_by_the_beginning_of_its_name() {
    let like = |name: &str| Device::like(name).map(|one| one.name);
    assert_eq!(like("NVIDIA A100-SXM4-40GB").as_deref(), Some("a100-40gb"));
    assert_eq!(like("a800-80gb").as_deref(), Some("a800-80gb"));
    // Cards for PCIe slots have less bandwidth.
    assert_eq!((like("NVIDIA A100 80GB PCIe"), like("Tesla V100-PCIE-16GB")), (None, None));
    // `A100` alone may be either of two; a CPU is none.
    assert_eq!((like("NVIDIA A100"), like("cpu"), like("gpu")), (None, None, None));
    assert_eq!(Device::beginning("H100").unwrap().name, "h100-80gb");
    assert_eq!(Device::beginning("a100-40gb").unwrap().name, "a100-40gb");
    assert!(Device::beginning("a100").unwrap_err().to_string().contains("a100-40gb, a100-80gb"));
}
