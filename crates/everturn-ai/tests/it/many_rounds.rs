//! Rounds nest, but not on the stack of the thread.

use serde_json::json;

use crate::generate_support::{constant, message, request, says, scripted, step};

#[test]
fn five_hundred_rounds_fit_into_a_small_stack() {
    const ROUNDS: usize = 500;
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let asks = (0..ROUNDS).map(|_| step(message(json!([request("t", "1", json!({}))]))));
            let (_registry, script, generate) = scripted(asks.chain([step(says("done"))]));

            let generate = generate.prompt("p").tool(constant("t", "o")).max_rounds(1000);
            let response = tokio::spawn(generate.run()).await.unwrap().unwrap();

            assert_eq!(response.text(), "done");
            assert_eq!(script.calls(), ROUNDS + 1);
        });
    };

    let thread = std::thread::Builder::new()
        .stack_size(2 * 1024 * 1024)
        .spawn(run)
        .unwrap();

    assert!(thread.join().is_ok());
}
