// SPDX-License-Identifier: GPL-2.0-only

//! The declaration of knobs: one list gives the struct and the table.

use crate::time::Span;

/// A type that a knob can have.
pub trait Setting: Copy {
    /// The value as a word: nanoseconds, a count, the number of a choice, 0 or 1.
    fn to_word(self) -> u64;
    /// The value that [`to_word`](Setting::to_word) wrote. The word is within the knob's range.
    fn from_word(word: u64) -> Self;
}

impl Setting for Span {
    fn to_word(self) -> u64 {
        self.as_nanos()
    }
    fn from_word(word: u64) -> Span {
        Span::from_nanos(word)
    }
}

impl Setting for u32 {
    fn to_word(self) -> u64 {
        self.into()
    }
    fn from_word(word: u64) -> u32 {
        word as u32
    }
}

impl Setting for bool {
    fn to_word(self) -> u64 {
        self.into()
    }
    fn from_word(word: u64) -> bool {
        word == 1
    }
}

/// Declares the knobs of a policy: a struct with typed fields and, as its constant `KNOBS`, the
/// entries of a [`Table`](crate::knobs::Table).
///
/// ```
/// use pandemonium_engine::knobs::{Kind, Table};
/// use pandemonium_engine::time::Span;
///
/// pandemonium_engine::knobs! {
///     /// What can be told to the policy.
///     pub struct MyKnobs {
///         /// Longest slice of any task.
///         "slice_us": slice: Span = Span::from_millis(4), Kind::micros(100, 100_000);
///         /// A task woken by one that is about to sleep takes its CPU.
///         "rule.hand_off" | "handoff": hand_off: bool = true, Kind::Switch;
///     }
/// }
///
/// static TABLE: Table = Table::new(&[MyKnobs::KNOBS]);
/// let mut values = TABLE.defaults();
/// values.set("slice_us=500").unwrap();
/// assert_eq!(MyKnobs::of(&values).slice, Span::from_micros(500));
/// assert!(values.set("slice_us=5").is_err());
/// ```
///
/// Names after a `|` are older names of the same knob: they are accepted with a warning. A struct
/// `with` a field of another such type has that one's knobs behind its own.
#[macro_export]
macro_rules! knobs {
    (
        $(#[$meta:meta])*
        $vis:vis struct $Knobs:ident {
            $($(#[doc = $doc:literal])+
            $name:literal $(| $alias:literal)*:
                $field:ident: $type:ty = $default:expr, $kind:expr;)*
        }
        $(with $more:ident: $More:ty;)?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis struct $Knobs {
            $($(#[doc = $doc])+ pub $field: $type,)*
            $(#[doc = "More of them."] pub $more: $More,)?
        }

        impl Default for $Knobs {
            fn default() -> Self {
                $Knobs { $($field: $default,)* $($more: <$More>::default(),)? }
            }
        }

        impl $Knobs {
            /// What a person is told of each, in the order of the fields.
            pub const KNOBS: &'static [$crate::knobs::Knob] = &[$($crate::knobs::Knob {
                name: $name,
                aliases: &[$($alias),*],
                about: concat!($($doc),+),
                kind: $kind,
                default: || {
                    let default: $type = $default;
                    $crate::knobs::Setting::to_word(default)
                },
            },)*];

            /// These knobs, by name; a knob that the values do not have is at its default.
            pub fn of(values: &$crate::knobs::Values) -> Self {
                let mut words = values.lookup();
                $Knobs {
                    $($field: match words.get($name) {
                        Some(word) => <$type as $crate::knobs::Setting>::from_word(word),
                        None => $default,
                    },)*
                    $($more: <$More>::of(values),)?
                }
            }

            /// Their words, in the order of the table.
            pub fn for_each_word(&self, each: &mut dyn FnMut(u64)) {
                $(each($crate::knobs::Setting::to_word(self.$field));)*
                $(self.$more.for_each_word(each);)?
            }
        }
    };
}
