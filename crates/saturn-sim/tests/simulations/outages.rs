//! What outages cost, beside the least that they can cost.

use saturn_sim::{Scale, outages};

#[test]
fn a_small_cluster_takes_little_more_than_faults_make_unavoidable() {
    let found = outages(Scale { num_nodes: 4, num_tasks: 12 }, 1).unwrap();
    assert!(found.num_failures > 10 && found.lost_device_s > 0.0);
    assert!(found.calm_s < found.least_s);
    assert!(found.troubled_s < 1.25 * found.least_s, "{found:?}");
}
