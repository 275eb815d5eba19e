//! Unknown fields in the options of the generate action are refused.

use everturn_ai::GenerateActionOptions;
use serde_json::json;

#[test]
fn options_with_a_field_that_does_not_exist_are_refused() {
    for options in [
        json!({ "messages": [], "temprature": 1 }),
        json!({ "messages": [], "output": { "schema": {} } }),
        json!({ "messages": [], "resume": { "reply": [] } }),
        json!({ "messages": [], "use": [{ "name": "retry", "options": {} }] }),
    ] {
        let error = serde_json::from_value::<GenerateActionOptions>(options).unwrap_err();
        assert!(error.to_string().contains("unknown field"), "{error}");
    }
}
