//! The environment variables with which the tools configure a program.

/// The configuration of the developer tools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    /// Whether development is enabled: `GENKIT_ENV=dev` or `EVERTURN_ENV=dev`.
    pub development: bool,
    /// The tools' WebSocket server (`GENKIT_REFLECTION_V2_SERVER`). Without it, the program serves HTTP.
    pub socket_server: Option<String>,
    /// The trace server (`GENKIT_TELEMETRY_SERVER`). Without it, the tools send its address when they
    /// connect.
    pub telemetry_server: Option<String>,
    /// Whether spans are also sent when they begin (`GENKIT_ENABLE_REALTIME_TELEMETRY=true`).
    pub realtime: bool,
    /// The id of the program in the tools (`GENKIT_RUNTIME_ID`).
    pub runtime_id: Option<String>,
    /// The port of the HTTP server (`GENKIT_REFLECTION_PORT`); by default the first free one from 3100.
    pub port: Option<u16>,
    /// The address of the HTTP server (`GENKIT_REFLECTION_HOST`); by default 127.0.0.1.
    pub host: Option<String>,
}

impl Environment {
    /// Reads the variables of this process.
    pub fn of_process() -> Self {
        Self::read(|name| std::env::var(name).ok())
    }

    /// Reads variables from `variable`. An empty one counts as absent.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let is = |name: &str, expected: &str| variable(name).is_some_and(|value| value == expected);
        Self {
            development: is("GENKIT_ENV", "dev") || is("EVERTURN_ENV", "dev"),
            socket_server: variable("GENKIT_REFLECTION_V2_SERVER"),
            telemetry_server: variable("GENKIT_TELEMETRY_SERVER"),
            realtime: is("GENKIT_ENABLE_REALTIME_TELEMETRY", "true"),
            runtime_id: variable("GENKIT_RUNTIME_ID"),
            port: variable("GENKIT_REFLECTION_PORT").and_then(|port| port.parse().ok()),
            host: variable("GENKIT_REFLECTION_HOST"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_switched_on_by_default() {
        assert_eq!(Environment::read(|_| None), Environment::default());
    }

    #[test]
    fn both_names_of_the_environment_mean_development() {
        for name in ["GENKIT_ENV", "EVERTURN_ENV"] {
            let environment = Environment::read(|asked| (asked == name).then(|| "dev".to_owned()));

            assert!(environment.development, "{name}");
        }
    }
}
