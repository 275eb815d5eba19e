//! Prices of models.

use std::collections::BTreeMap;

use crate::{Money, Usage};

/// The price of a model's tokens.
///
/// ```
/// use everturn_ai::Price;
///
/// // 0.25 per million tokens of requests, 2.00 per million of answers; cached tokens at a tenth.
/// let price = Price::per_million(0.25, 2.0).cached(0.025);
/// # let _ = price;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Price {
    /// The prices of tokens are those of a million.
    input: Money,
    output: Money,
    cached: Option<Money>,
    call: Money,
}

impl Price {
    /// Sets the prices of a million tokens of requests and of a million tokens of answers, reasoning
    /// included.
    pub fn per_million(input: f64, output: f64) -> Self {
        Self {
            input: input.into(),
            output: output.into(),
            ..Self::default()
        }
    }

    /// A model that costs nothing, such as one on the own machine.
    pub fn free() -> Self {
        Self::default()
    }

    everturn_core::setters! {
        /// Sets the price of a million cached tokens of requests; by default they cost as much as others.
        pub fn cached(mut self, per_million: f64) { self.cached = Some(per_million.into()) }

        /// Adds a fixed price for each call.
        pub fn per_call(mut self, price: impl Into<Money>) { self.call = price.into() }
    }

    /// Returns the cost of a call with this usage.
    pub fn cost(&self, usage: &Usage) -> Money {
        let input = usage.input_tokens.unwrap_or_default();
        // Cached tokens are part of the input tokens: `everturn-models` adds them up for providers that
        // report them separately.
        let cached = usage.cached_content_tokens.unwrap_or_default().min(input);
        let output = usage.output_tokens.unwrap_or_default();
        self.call
            + self.input.of_a_million(input - cached)
            + self.cached.unwrap_or(self.input).of_a_million(cached)
            + self.output.of_a_million(output)
    }
}

/// The prices of models, by name. The application provides them, because prices change faster than programs.
///
/// A name that ends with `*` matches all models with that prefix; the longest match counts.
///
/// ```
/// use everturn_ai::{Price, Prices, Usage};
///
/// let prices = Prices::new()
///     .model("openai/gpt-5-mini", Price::per_million(0.25, 2.0).cached(0.025))
///     .model("ollama/*", Price::free());
///
/// let usage = Usage { input_tokens: Some(2_000), output_tokens: Some(500), ..Usage::default() };
/// assert_eq!(prices.cost("openai/gpt-5-mini", &usage), Some(0.0015.into()));
/// assert_eq!(prices.cost("ollama/qwen3", &usage), Some(0.0.into()));
/// assert_eq!(prices.cost("openai/gpt-6", &usage), None);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Prices(BTreeMap<String, Price>);

impl Prices {
    /// Creates an empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the price of the model with this name, or of all models whose names begin with the part before
    /// `*`.
    pub fn model(mut self, name: impl Into<String>, price: Price) -> Self {
        self.0.insert(name.into(), price);
        self
    }

    /// Returns the price of a model, if it is known.
    pub fn of(&self, model: &str) -> Option<&Price> {
        let name = model.strip_prefix("/model/").unwrap_or(model);
        self.0.get(name).or_else(|| {
            let fits = |pattern: &&String| {
                pattern
                    .strip_suffix('*')
                    .is_some_and(|beginning| name.starts_with(beginning))
            };
            let longest = self.0.keys().filter(fits).max_by_key(|pattern| pattern.len())?;
            self.0.get(longest)
        })
    }

    /// Returns the cost of a model's call with this usage; `None` if the model has no price.
    pub fn cost(&self, model: &str, usage: &Usage) -> Option<Money> {
        self.of(model).map(|price| price.cost(usage))
    }
}

impl<N: Into<String>> FromIterator<(N, Price)> for Prices {
    fn from_iter<I: IntoIterator<Item = (N, Price)>>(prices: I) -> Self {
        Self(
            prices
                .into_iter()
                .map(|(name, price)| (name.into(), price))
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_tokens_cost_their_own_price_and_are_part_of_the_input() {
        let usage = Usage {
            input_tokens: Some(1_000_000),
            cached_content_tokens: Some(400_000),
            output_tokens: Some(100_000),
            ..Usage::default()
        };

        let price = Price::per_million(1.0, 10.0);

        assert_eq!(price.cost(&usage), 2.0.into());
        assert_eq!(price.cached(0.1).cost(&usage), 1.64.into());
        assert_eq!(price.per_call(0.5).cost(&usage), 2.5.into());
    }

    #[test]
    fn the_longest_pattern_that_fits_counts_and_a_whole_name_before_all() {
        let prices = Prices::from_iter([
            ("acme/*", Price::per_million(1.0, 0.0)),
            ("acme/large*", Price::per_million(2.0, 0.0)),
            ("acme/large", Price::per_million(3.0, 0.0)),
        ]);
        let input = |tokens| Usage {
            input_tokens: Some(tokens),
            ..Usage::default()
        };
        let cost = |model| prices.cost(model, &input(1_000_000));

        assert_eq!(cost("acme/small"), Some(1.0.into()));
        assert_eq!(cost("acme/large-2026"), Some(2.0.into()));
        assert_eq!(cost("acme/large"), Some(3.0.into()));
        assert_eq!(cost("/model/acme/large"), Some(3.0.into()));
        assert_eq!(cost("other"), None);
    }
}
