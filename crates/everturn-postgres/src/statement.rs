//! Statements, their parameters and the columns of their rows.

use everturn_agent::store::Scope;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, ToSql, Type};
use uuid::Uuid;

use everturn_sql::StoreFault;

use crate::fault::{Fault, Outcome, describe};
use crate::position::{SessionKey, tenant};

/// A statement with its parameters. An `@` before a table's name stands for the schema.
#[derive(Default)]
pub(crate) struct Statement<'a> {
    pub(crate) sql: String,
    pub(crate) params: Vec<(Box<dyn ToSql + Sync + Send + 'a>, Type)>,
}

impl<'a> Statement<'a> {
    pub(crate) fn new(sql: impl Into<String>) -> Self {
        Self {
            sql: sql.into(),
            params: Vec::new(),
        }
    }

    /// Adds the next parameters.
    pub(crate) fn with(mut self, values: impl Parameters<'a>) -> Self {
        values.add_to(&mut self);
        self
    }

    /// Adds a parameter and returns its name.
    pub(crate) fn bind<T: Parameter + 'a>(&mut self, value: T) -> String {
        self.params.push((Box::new(value), T::TYPE));
        format!("${}", self.params.len())
    }
}

/// A value of one parameter.
pub(crate) trait Parameter: ToSql + Sync + Send {
    const TYPE: Type;
}

macro_rules! parameter_types {
    ($($type:ty => $name:ident,)*) => {
        $(impl Parameter for $type {
            const TYPE: Type = Type::$name;
        })*
    };
}

parameter_types! {
    bool => BOOL,
    i32 => INT4,
    i64 => INT8,
    String => TEXT,
    Uuid => UUID,
    &[u8] => BYTEA,
    Vec<u8> => BYTEA,
    Vec<i32> => INT4_ARRAY,
    Vec<i64> => INT8_ARRAY,
    Vec<Option<i64>> => INT8_ARRAY,
    Vec<Uuid> => UUID_ARRAY,
    Vec<Vec<u8>> => BYTEA_ARRAY,
}

impl<T: Parameter> Parameter for Option<T> {
    const TYPE: Type = T::TYPE;
}

/// The values of one or more parameters.
pub(crate) trait Parameters<'a> {
    fn add_to(self, statement: &mut Statement<'a>);
}

impl<'a, T: Parameter + 'a> Parameters<'a> for T {
    fn add_to(self, statement: &mut Statement<'a>) {
        statement.bind(self);
    }
}

/// The bytes of a name, because a text of PostgreSQL cannot contain zeros.
impl<'a> Parameters<'a> for &str {
    fn add_to(self, statement: &mut Statement<'a>) {
        statement.bind(self.as_bytes().to_vec());
    }
}

/// The tenant and the own key.
impl<'a> Parameters<'a> for SessionKey {
    fn add_to(self, statement: &mut Statement<'a>) {
        (self.tenant, self.id).add_to(statement);
    }
}

/// The place of the tenant's rows, and the scope.
impl<'a> Parameters<'a> for &Scope {
    fn add_to(self, statement: &mut Statement<'a>) {
        (tenant(self), self.as_str()).add_to(statement);
    }
}

macro_rules! parameter_tuples {
    ($(($($name:ident),*))*) => {
        $(impl<'a, $($name: Parameters<'a>),*> Parameters<'a> for ($($name,)*) {
            #[expect(non_snake_case, reason = "named after the types")]
            fn add_to(self, statement: &mut Statement<'a>) {
                let ($($name,)*) = self;
                $($name.add_to(statement);)*
            }
        })*
    };
}

parameter_tuples! { (A, B) (A, B, C) (A, B, C, D) (A, B, C, D, E) (A, B, C, D, E, F) }

/// Returns the value of a column. A value that no version writes is reported as damage.
pub(crate) fn column<'r, T: FromSql<'r>>(row: &'r Row, index: usize) -> Outcome<T> {
    row.try_get(index)
        .map_err(|error| Fault::damaged(describe(&error)))
}

/// Reads the tenant and the own key of a session from two columns.
pub(crate) fn session_key(row: &Row, first: usize) -> Outcome<SessionKey> {
    Ok(SessionKey::new(column(row, first)?, column(row, first + 1)?))
}
