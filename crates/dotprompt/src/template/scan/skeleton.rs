//! The skeleton: the tags rewritten for the parser.

use std::fmt::Write as _;

use super::Scan;
use super::tag::{Form, Head, Tag};
use super::word::{TokenKind, is_partial_name, is_simple};

/// The letter that stands for a text.
const TEXT: char = 'T';
/// The name that stands for one that the grammar does not accept.
const NAME: &str = "_";

pub(super) fn write(tags: Vec<Tag>, texts: Vec<String>) -> Scan {
    let seen = tags.len();
    let mut writer = Writer {
        skeleton: String::new(),
        strings: Vec::new(),
        open: Vec::new(),
    };
    let mut places = Vec::with_capacity(seen);
    let mut kept_tags = Vec::with_capacity(seen);
    let mut kept_texts = Vec::new();
    let mut texts = texts.into_iter();
    let mut keep_text = |text: Option<String>, writer: &mut Writer| {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            writer.skeleton.push(TEXT);
            kept_texts.push(text);
        }
    };
    for mut tag in tags {
        keep_text(texts.next(), &mut writer);
        places.push((writer.skeleton.len(), tag.offset));
        writer.tag(&mut tag);
        if tag.form.is_in_tree() {
            kept_tags.push(tag);
        }
    }
    keep_text(texts.next(), &mut writer);
    let Writer {
        skeleton, strings, ..
    } = writer;
    Scan {
        skeleton,
        tags: kept_tags,
        texts: kept_texts,
        strings,
        seen,
        places,
    }
}

struct Writer {
    skeleton: String,
    strings: Vec<String>,
    /// The names of the open blocks, as the skeleton writes them.
    open: Vec<String>,
}

impl Writer {
    fn tag(&mut self, tag: &mut Tag) {
        let (start, end) = match tag.form {
            Form::Comment => return,
            Form::Mustache => ("{{", "}}"),
            Form::Partial => ("{{>", "}}"),
            Form::Decorator => ("{{*", "}}"),
            Form::Open | Form::InverseOpen => ("{{#", "}}"),
            Form::PartialOpen => ("{{#>", "}}"),
            Form::DecoratorOpen => ("{{#*", "}}"),
            Form::RawOpen => ("{{{{", "}}}}"),
            Form::Else | Form::Chain => ("{{else", "}}"),
            Form::Close => ("{{/", "}}"),
            Form::RawClose => ("{{{{/", "}}}}"),
        };
        self.skeleton.push_str(start);
        if tag.form.closes() {
            let name = self.open.pop().unwrap_or_default();
            self.skeleton.push_str(&name);
        } else {
            self.words(tag);
        }
        self.skeleton.push_str(end);
    }

    fn words(&mut self, tag: &mut Tag) {
        tag.head = stand_in_for(tag);
        let mut tokens = tag.tokens.iter();
        if tag.head.is_some() {
            tokens.next();
            self.skeleton.push(' ');
            self.skeleton.push_str(NAME);
        }
        if tag.form.opens() {
            self.open.push(if tag.head.is_some() {
                NAME.to_owned()
            } else {
                tag.name().to_owned()
            });
        }
        for token in tokens {
            self.skeleton.push(' ');
            match &token.kind {
                TokenKind::Symbol(symbol) => self.skeleton.push(*symbol),
                TokenKind::Text(text) => {
                    // Writing to a string cannot fail.
                    let _ = write!(self.skeleton, "\"{}\"", self.strings.len());
                    self.strings.push(text.clone());
                }
                TokenKind::Word(word) => self.word(word),
            }
        }
    }

    /// Writes a word in the grammar's terms: a path must not end in `.`, and one that starts with `[` would be
    /// read as a list.
    fn word(&mut self, word: &str) {
        let (word, suffix) = if word == ".." || word.ends_with("/..") {
            (word, "/this")
        } else if word == "." || word.ends_with("/.") {
            (&word[..word.len() - 1], "this")
        } else {
            (word, "")
        };
        if word.starts_with('[') {
            self.skeleton.push_str("this.");
        }
        self.skeleton.push_str(word);
        self.skeleton.push_str(suffix);
    }
}

/// Returns the tag's name if the grammar does not accept it as it is.
fn stand_in_for(tag: &Tag) -> Option<Head> {
    let first = &tag.tokens.first()?.kind;
    let accepted = match (tag.form, first) {
        (_, TokenKind::Symbol(_)) | (Form::Decorator | Form::DecoratorOpen, _) => true,
        // The grammar reads `elsewhere` as `else where`.
        (Form::Mustache, TokenKind::Word(word)) => !(word.starts_with("else") && is_simple(word)),
        (Form::Partial | Form::PartialOpen, TokenKind::Word(word)) => is_partial_name(word),
        (_, TokenKind::Word(word)) => is_simple(word),
        (_, TokenKind::Text(_)) => false,
    };
    if accepted {
        return None;
    }
    match first {
        TokenKind::Word(word) if !matches!(tag.form, Form::Partial | Form::PartialOpen) => {
            Some(Head::Path(word.clone()))
        }
        _ => Some(Head::Key(tag.name().to_owned())),
    }
}
