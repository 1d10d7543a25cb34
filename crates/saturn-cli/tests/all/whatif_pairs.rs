//! `saturn whatif` of problems that have more than tasks and equal nodes: prices, host memory,
//! deadlines and gangs across nodes, each with what the other commands say of the same tasks.

use serde_json::{Value, json};

use crate::whatif::{folder, whatif};

/// The answer to a problem as data, and the exit code.
fn answer(problem: &Value, more: &[&str]) -> (i32, Value) {
    let folder = folder(&[("p.json", &problem.to_string())]);
    let (code, shown, talk) = whatif(&folder, &[&["p.json", "--json"], more].concat());
    (code, serde_json::from_str(&shown).unwrap_or(Value::String(talk)))
}

fn task(name: &str, strategies: &[(u32, f64)]) -> Value {
    let strategies = strategies
        .iter()
        .map(|(gpus, runtime_s)| json!({"technique": "ddp", "gpus": gpus, "runtime_s": runtime_s}));
    json!({"name": name, "strategies": strategies.collect::<Vec<_>>()})
}

#[test]
fn the_order_of_the_nodes_in_the_file_changes_no_answer() {
    let small =
        json!({"name": "small", "gpus": 4, "price_per_hour": 10.0, "host_memory_bytes": 100});
    let large =
        json!({"name": "large", "gpus": 8, "price_per_hour": 40.0, "host_memory_bytes": 50});
    let tasks = json!([task("a", &[(4, 3600.0)])]);
    for nodes in [json!([small, large]), json!([large, small])] {
        let problem = json!({"cluster": {"nodes": nodes}, "tasks": tasks});
        let (code, data) = answer(&problem, &["--nodes", "2"]);
        assert_eq!((code, &data["sizes"][0]["cost"]), (0, &json!(80.0)), "{data}");
        let (_, data) = answer(&problem, &["--nodes", "2", "--gpus", "4"]);
        assert_eq!(data["sizes"][0]["cost"], json!(20.0), "the price of a node of 4: {data}");
        let (_, data) = answer(&problem, &["--nodes", "2", "--gpus", "6"]);
        assert_eq!(data["sizes"][0]["cost"], Value::Null, "no node of 6 has a price: {data}");
    }
    let [cheap, dear] = [10.0, 40.0].map(|price| json!({"gpus": 4, "price_per_hour": price}));
    let problem = json!({"cluster": {"nodes": [cheap, dear]}, "tasks": tasks});
    let (code, data) = answer(&problem, &["--nodes", "1"]);
    assert_eq!((code, &data["sizes"][0]["cost"]), (0, &Value::Null), "two prices: {data}");
    let [much, little] = [100, 50].map(|bytes| json!({"gpus": 4, "host_memory_bytes": bytes}));
    let problem = json!({"cluster": {"nodes": [much, little]}, "tasks": tasks});
    let (code, said) = answer(&problem, &["--nodes", "1"]);
    assert_eq!(code, 2);
    assert!(said.as_str().unwrap().contains("not the same host memory"), "{said}");
}

#[test]
fn with_more_nodes_a_soft_deadline_is_missed_by_less_and_not_by_more() {
    let mut soft = task("a", &[(1, 100.0), (3, 90.0)]);
    (soft["deadline_s"], soft["late_price"]) = (json!(10.0), json!(5.0));
    let nodes = json!([{"gpus": 1}]);
    for other_s in [95.0, 100.0] {
        let tasks = json!([soft, task("b", &[(1, other_s)])]);
        let problem = json!({"cluster": {"nodes": nodes}, "tasks": tasks});
        let (_, data) = answer(&problem, &["--nodes", "1..4"]);
        let makespans = data["sizes"].as_array().unwrap().iter();
        let makespans: Vec<f64> =
            makespans.map(|size| size["makespan_s"].as_f64().unwrap()).collect();
        // On three nodes it ends after 90 s, which is 10 s less late, and the other task after it.
        assert!((makespans[1] - 100.0).abs() < 1e-6, "{makespans:?}");
        assert!((makespans[2] - 90.0 - other_s).abs() < 1e-6, "{makespans:?}");
        assert!((makespans[3] - other_s.max(90.0)).abs() < 1e-6, "{makespans:?}");
    }
}

#[test]
fn a_missed_deadline_is_not_called_a_lack_of_room() {
    let tasks = json!([task("a", &[(4, 100.0)]), task("b", &[(4, 100.0)])]);
    let nodes = json!([{"gpus": 4}]);
    let problem = json!({"cluster": {"nodes": nodes}, "tasks": tasks, "deadline_s": 150.0});
    let (code, data) = answer(&problem, &["--nodes", "1,2"]);
    assert_eq!((code, &data["sizes"][0]["misses_tasks_deadline"]), (0, &json!(true)), "{data}");
    let folder = folder(&[("p.json", &problem.to_string())]);
    let (_, shown, _) = whatif(&folder, &["p.json", "--nodes", "1,2"]);
    assert!(shown.contains("misses a task's deadline"), "{shown}");
}

#[test]
fn types_are_compared_by_the_strategies_that_all_of_them_have() {
    let nodes = json!([{"gpus": 4, "type": "a100-80gb", "price_per_hour": 36.0}]);
    let tasks = json!([task("a", &[(8, 100.0), (4, 1000.0)])]);
    let problem = json!({"cluster": {"nodes": nodes}, "tasks": tasks});
    let typed = ["--nodes", "1", "--gpus", "4", "--type"];
    let (code, data) = answer(&problem, &[&typed[..], &["a100-80gb,h100"]].concat());
    assert_eq!(code, 0);
    let [here, there] = [0, 1].map(|number| data["types"][number]["sizes"][0].clone());
    assert_eq!(here["most_makespan_s"], there["most_makespan_s"], "a step may take as long there");
    assert_eq!(here["most_cost"], json!(10.0), "the file's price, of its own type: {data}");
    assert_eq!(there["most_cost"], Value::Null);
    let (code, _) = answer(&problem, &["--nodes", "1", "--gpus", "2", "--type", "a100-80gb"]);
    assert_eq!(code, 3, "no strategy fits a node of two");
}
