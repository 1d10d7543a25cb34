//! The charts of a page, as the data that its script draws them from.

use serde_json::Value;

/// The data of the charts of a kind, in the order of the page.
pub(crate) fn charts(page: &str, kind: &str) -> Vec<Value> {
    let mark = format!(" data-chart=\"{kind}\"");
    let data = page.split(&mark).skip(1).map(|place| {
        let (_, rest) = place.split_once("<script type=\"application/json\">").unwrap();
        serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
    });
    data.collect()
}
