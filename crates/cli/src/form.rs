//! The formats in which data is printed: for people or for programs.

use clap::{Args, ValueEnum};
use serde_json::{Map, Value};

use crate::output::data;
use crate::table::lines;

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Format {
    /// The format of the output
    #[arg(long = "format", value_enum, value_name = "FORM", default_value = "table")]
    pub(crate) form: Form,
}

/// A format of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// A table for people
    Table,
    /// One JSON document
    Json,
    /// One JSON object per line
    Jsonl,
}

impl Form {
    /// Prints one thing.
    pub(crate) fn one(
        self,
        thing: &Value,
        table: impl FnOnce(&Value) -> String,
    ) -> std::io::Result<()> {
        match self {
            Form::Table => data(&table(thing)),
            Form::Json | Form::Jsonl => data(&format!("{thing}\n")),
        }
    }

    /// Prints a list: under its name in one document, or line by line.
    pub(crate) fn list(
        self,
        name: &str,
        things: Vec<Value>,
        table: impl FnOnce(&[Value]) -> String,
    ) -> std::io::Result<()> {
        match self {
            Form::Table => data(&table(&things)),
            Form::Json => {
                let whole = Map::from_iter([(name.to_string(), Value::Array(things))]);
                data(&format!("{}\n", Value::Object(whole)))
            }
            Form::Jsonl => data(&lines(&things)),
        }
    }
}
