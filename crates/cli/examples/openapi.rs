//! Prints the `OpenAPI` document of the daemon: `docs/openapi.json` is its output.

fn main() {
    print!("{}", paceline_cli::tools::document());
}
