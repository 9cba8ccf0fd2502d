//! The two text formats of Prometheus.

use super::host::HostMetrics;
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::Arc;

/// `OpenMetrics` 1.0.
///
/// # Errors
/// Memory for the text could not be had.
pub fn openmetrics(metrics: &Arc<HostMetrics>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(metrics.clone()));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

/// The older text format 0.0.4, made from `OpenMetrics`: samples are the same, and a family has the name of its
/// samples, suffix and all.
pub fn prometheus_text(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len());
    let mut help = None;
    for line in openmetrics.lines() {
        let about = |kind: &str| line.strip_prefix("# ").and_then(|rest| rest.strip_prefix(kind)?.split_once(' '));
        if let Some(named) = about("HELP ") {
            help = Some(named);
        } else if let Some((name, kind)) = about("TYPE ") {
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                _ => ("", kind),
            };
            if let Some((_, help)) = help.take() {
                text.push_str(&format!("# HELP {name}{suffix} {help}\n"));
            }
            text.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
        } else if !line.starts_with('#') {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}
