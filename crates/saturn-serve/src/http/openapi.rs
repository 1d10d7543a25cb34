//! The description of the API, as `OpenAPI` 3.1: made from the list of routes and of schemas.

use serde_json::{Map, Value, json};

use crate::http::routes::{Access, HEADER, Handler, KEY_HEADER, METRICS, ROUTES, Route, Verb};
use crate::http::schemas::{SCHEMAS, schema_of};

/// The description of the API.
pub fn openapi() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES.iter().filter(|route| route.is_for_programs()) {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        if let Value::Object(verbs) = path {
            verbs.insert(verb(route.verb).to_owned(), operation(route));
        }
    }
    let schemas: Map<String, Value> =
        SCHEMAS.iter().map(|schema| (schema.name.to_owned(), schema_of(schema))).collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Saturn",
            "version": "1",
            "summary": "The runs of one person on one machine.",
            "description": "Within version 1, fields and addresses are added, and never removed \
                or changed. All times are seconds on the run's own clock, which stands still while \
                no process drives the run. A number that is not finite is the string `nan`, `inf` \
                or `-inf`.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}, {"cookie": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": "saturn-PORT"},
            },
        },
    })
}

fn verb(verb: Verb) -> &'static str {
    match verb {
        Verb::Get => "get",
        Verb::Post => "post",
        Verb::Delete => "delete",
    }
}

fn operation(route: &Route) -> Value {
    let mut operation = json!({
        "operationId": format!("{:?}", route.handler),
        "summary": route.about,
        "parameters": parameters(route),
        "responses": responses(route),
    });
    let body = match route.handler {
        Handler::LogIn => Some("Login"),
        Handler::Command => Some("Command"),
        _ => None,
    };
    if let (Some(body), Value::Object(fields)) = (body, &mut operation) {
        let content = json!({"application/json": {"schema": reference(body)}});
        fields.insert("requestBody".to_owned(), json!({"required": true, "content": content}));
    }
    if let (Access::Open | Access::Login, Value::Object(fields)) = (route.access, &mut operation) {
        fields.insert("security".to_owned(), json!([]));
    }
    operation
}

fn parameters(route: &Route) -> Vec<Value> {
    let names = route
        .path
        .split('/')
        .filter_map(|part| part.strip_prefix('{').and_then(|part| part.strip_suffix('}')));
    let in_path = names.map(|name| {
        let schema = json!({"type": "string"});
        json!({"name": name, "in": "path", "required": true, "schema": schema})
    });
    let in_query = route.query.iter().map(|one| {
        let schema = json!({"type": one.kind});
        json!({"name": one.name, "in": "query", "description": one.about, "schema": schema})
    });
    let header = |name: &str, is_required: bool, about: &str, schema: Value| {
        json!({
            "name": name, "in": "header", "required": is_required, "description": about,
            "schema": schema,
        })
    };
    let mut headers = Vec::new();
    if matches!(route.access, Access::Write | Access::Login) {
        headers.push(header(
            HEADER,
            true,
            "A page of another site can't send it.",
            json!({"type": "string", "const": "1"}),
        ));
    }
    if route.handler == Handler::Command {
        headers.push(header(
            KEY_HEADER,
            false,
            "A command that is sent again with its key is not carried out again, and gets the \
             same answer.",
            json!({"type": "string", "maxLength": 128}),
        ));
    }
    if route.handler == Handler::Events {
        headers.push(header(
            "last-event-id",
            false,
            "As `after`, which it overrides: browsers send it when they connect again.",
            json!({"type": "string"}),
        ));
    }
    if route.handler == Handler::Plan {
        headers.push(header("if-none-match", false, "A known ETag.", json!({"type": "string"})));
    }
    in_path.chain(in_query).chain(headers).collect()
}

fn responses(route: &Route) -> Value {
    let content = match route.answer {
        "Event" => json!({"text/event-stream": {"schema": reference("Event")}}),
        METRICS => json!({"text/plain": {"schema": {"type": "string"}}}),
        "OpenApi" => json!({"application/json": {"schema": {"type": "object"}}}),
        name => json!({"application/json": {"schema": reference(name)}}),
    };
    let refused = json!({
        "description": "Refused, or not found, or failed.",
        "content": {"application/json": {"schema": reference("Refusal")}},
    });
    let mut responses = json!({
        "200": {"description": route.about, "content": content},
        "default": refused,
    });
    if let (Handler::Plan, Value::Object(all)) = (route.handler, &mut responses) {
        all.insert("304".to_owned(), json!({"description": "The plan is the known one."}));
    }
    responses
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_of_the_api_is_described() {
        let described = openapi();
        for route in ROUTES.iter().filter(|route| route.is_for_programs()) {
            let operation = &described["paths"][route.path][verb(route.verb)];
            assert_eq!(operation["summary"], route.about, "{}", route.path);
            let ids = ROUTES.iter().filter(|other| other.handler == route.handler).count();
            assert_eq!(ids, 1, "{} is one operation", route.path);
        }
    }

    #[test]
    fn every_reference_leads_to_a_schema() {
        let described = openapi().to_string();
        for part in described.split("#/components/schemas/").skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(SCHEMAS.iter().any(|schema| schema.name == name), "{name}");
        }
        let unused = SCHEMAS.iter().filter(|schema| {
            !described.contains(&format!("#/components/schemas/{}\"", schema.name))
        });
        assert_eq!(unused.map(|schema| schema.name).collect::<Vec<_>>(), [""; 0]);
    }
}
