//! Environment variables: trimmed, with an empty one counting as unset.

use std::env;

/// The source of settings by name: the environment of the process, or a table in tests.
pub(crate) struct Environment<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Environment<'_> {
    /// The variables of this process.
    pub(crate) const PROCESS: Environment<'static> = Environment(&|name| env::var(name).ok());

    /// Variables from a function.
    #[cfg(test)]
    pub(crate) fn of(lookup: &dyn Fn(&str) -> Option<String>) -> Environment<'_> {
        Environment(lookup)
    }

    /// The value of a variable, unless it is unset or blank.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        let value = (self.0)(name)?;
        let trimmed = value.trim();
        (!trimmed.is_empty()).then(|| trimmed.to_owned())
    }

    /// The headers in a variable, one `Name: value` per line.
    pub(crate) fn headers(&self, name: &str) -> Vec<(String, String)> {
        let lines = self.get(name).unwrap_or_default();
        let headers = lines.lines().filter_map(|line| line.split_once(':'));
        headers
            .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
            .collect()
    }
}
