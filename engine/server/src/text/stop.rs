//! Stop strings in a stream of text: no part of one leaves before it is known not to match.

/// Finds the stop string whose last character comes first; among several that end there, the longest.
///
/// Looking at the end makes the result the same however the text is cut into pieces. The number and the length of
/// stop strings are bounded by the caller (the HTTP layer); a step costs their total length times the text held back.
#[derive(Clone, Debug)]
pub(super) struct StopMatcher {
    stops: Vec<String>,
    held: String,
    /// Bytes of `held`, from its beginning, in which no match may end.
    num_exempt: usize,
}

/// What may leave after a piece of text came in.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StopScan {
    /// No match yet: this text can no longer be part of one.
    Text(String),
    /// Matched: the text before the match, and which stop string.
    Stopped { before: String, stop: String },
}

impl StopMatcher {
    /// A matcher; empty stop strings are left out, since they would match before any text.
    pub(super) fn new(stops: Vec<String>) -> Self {
        let stops = stops.into_iter().filter(|stop| !stop.is_empty()).collect();
        Self { stops, held: String::new(), num_exempt: 0 }
    }

    /// Takes `text` in and gives out what is safe. A match may begin in `exempt` text but not end in it.
    pub(super) fn push(&mut self, text: &str, exempt: bool) -> StopScan {
        self.held.push_str(text);
        if exempt {
            self.num_exempt = self.held.len();
        } else if let Some((start, stop)) = self.first_match() {
            let stop = stop.to_owned();
            self.held.truncate(start);
            return StopScan::Stopped { before: std::mem::take(&mut self.held), stop };
        }
        let num_safe = self.held.len() - self.open_len();
        self.num_exempt = self.num_exempt.saturating_sub(num_safe);
        let tail = self.held.split_off(num_safe);
        StopScan::Text(std::mem::replace(&mut self.held, tail))
    }

    /// Gives out what was held back: no more text comes.
    pub(super) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    fn first_match(&self) -> Option<(usize, &str)> {
        let ends = self.stops.iter().filter_map(|stop| {
            // By bytes, since this may be inside a character, where no stop string begins.
            let first = (self.num_exempt + 1).saturating_sub(stop.len());
            let mut windows = self.held.as_bytes()[first..].windows(stop.len());
            let start = first + windows.position(|window| window == stop.as_bytes())?;
            Some((start + stop.len(), start, stop.as_str()))
        });
        ends.min_by_key(|&(end, start, _)| (end, start)).map(|(_, start, stop)| (start, stop))
    }

    /// Length of the longest end of the held text that begins a stop string.
    fn open_len(&self) -> usize {
        let opens = |stop: &String| {
            let longest = self.held.len().min(stop.len() - 1);
            (1..=longest)
                .rev()
                .find(|&n| stop.as_bytes().starts_with(&self.held.as_bytes()[self.held.len() - n..]))
        };
        self.stops.iter().filter_map(opens).max().unwrap_or(0)
    }
}
