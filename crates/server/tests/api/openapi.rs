//! The document is what the code says, and the code does what the document says.

use crate::kit::{Service, made};

#[test]
fn the_document_in_the_repository_is_the_one_that_the_code_makes() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
    let committed = std::fs::read_to_string(file).unwrap_or_default();
    assert!(
        committed == paceline_server::document(),
        "it has drifted: cargo run -p paceline-server --example openapi > crates/server/openapi.json"
    );
}

#[tokio::test]
async fn the_daemon_serves_its_own_document() {
    let service = Service::kind().await;
    let daemon = made(service.address).start().await;
    let served = daemon.get("/api/v1/openapi.json").await.json();
    let made: serde_json::Value = serde_json::from_str(&paceline_server::document()).expect("JSON");
    assert_eq!(served, made);
    assert!(served["openapi"].as_str().is_some_and(|version| version.starts_with("3.1")));
}
