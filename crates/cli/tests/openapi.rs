//! The OpenAPI document in the repository is the one that the code makes.

#[test]
fn the_document_in_the_repository_is_the_one_that_the_code_makes() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    let committed = std::fs::read_to_string(file).unwrap_or_default();
    assert!(
        committed == paceline_cli::tools::document(),
        "it has drifted: cargo run -p paceline-cli --example openapi > docs/openapi.json"
    );
}
