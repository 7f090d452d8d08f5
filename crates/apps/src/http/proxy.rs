//! Proxies from the environment.
