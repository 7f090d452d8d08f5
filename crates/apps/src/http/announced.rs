//! What a service says about its limits.
