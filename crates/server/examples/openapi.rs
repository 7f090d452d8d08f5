//! Prints the OpenAPI document, to be committed.

fn main() {
    print!("{}", paceline_server::document());
}
