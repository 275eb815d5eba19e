//! Which version of a file it is, told without reading it.

use std::fs::Metadata;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// More than the steps of a clock whose times have fractions of a second: kernels take 10 ms at most, and so does exFAT.
const FINE_STEP: Duration = Duration::from_millis(50);

/// More than the steps of a clock whose times are whole seconds: FAT's are of two.
const COARSE_STEP: Duration = Duration::from_secs(3);

/// What tells the versions of a file apart: when it is written, or another is put in its place, it has another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// When its content was last written.
    pub modified: SystemTime,
    /// When anything about it last changed, which nobody can set back; where that is not kept, as `modified`.
    pub changed: SystemTime,
    /// How long it is.
    pub length: u64,
    /// The number of the file behind the name; zero where files have none.
    pub number: u64,
}

impl Version {
    /// The version of a file of the operating system; `None` where it keeps no times.
    pub(crate) fn of(file: &Metadata) -> Option<Self> {
        let modified = file.modified().ok()?;
        let (changed, number) = changed_and_number(file).unwrap_or((modified, 0));
        Some(Self {
            modified,
            changed,
            length: file.len(),
            number,
        })
    }

    /// Whether any change after that moment gives the file another version.
    ///
    /// Clocks of file systems go in steps, and what changes twice within one bears the same times. It may have the same
    /// length too, and even the same number: one that became free is given to the next file.
    pub(crate) fn is_settled(&self, moment: SystemTime) -> bool {
        let times = [self.modified, self.changed];
        let step = if times.into_iter().any(is_whole_second) {
            COARSE_STEP
        } else {
            FINE_STEP
        };
        times
            .into_iter()
            .all(|time| moment.duration_since(time).is_ok_and(|age| age > step))
    }
}

#[cfg(unix)]
fn changed_and_number(file: &Metadata) -> Option<(SystemTime, u64)> {
    use std::os::unix::fs::MetadataExt;

    let seconds = Duration::from_secs(file.ctime().try_into().ok()?);
    let fraction = Duration::from_nanos(file.ctime_nsec().try_into().ok()?);
    Some((UNIX_EPOCH + seconds + fraction, file.ino()))
}

#[cfg(not(unix))]
fn changed_and_number(_: &Metadata) -> Option<(SystemTime, u64)> {
    None
}

fn is_whole_second(time: SystemTime) -> bool {
    time.duration_since(UNIX_EPOCH)
        .is_ok_and(|time| time.subsec_nanos() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(at: Duration) -> Version {
        let time = UNIX_EPOCH + at;
        Version {
            modified: time,
            changed: time,
            length: 1,
            number: 1,
        }
    }

    #[test]
    fn a_file_is_settled_once_the_clock_has_moved_on() {
        let at = Duration::from_millis(1500);
        let file = written(at);

        for (age, settled) in [(0, false), (50, false), (51, true)] {
            let moment = UNIX_EPOCH + at + Duration::from_millis(age);
            assert_eq!(file.is_settled(moment), settled, "after {age} ms");
        }
    }

    #[test]
    fn a_clock_of_whole_seconds_is_given_longer() {
        let at = Duration::from_secs(1);
        let file = written(at);

        for (age, settled) in [(51, false), (3000, false), (3001, true)] {
            let moment = UNIX_EPOCH + at + Duration::from_millis(age);
            assert_eq!(file.is_settled(moment), settled, "after {age} ms");
        }
    }

    #[test]
    fn a_file_of_the_future_is_never_settled() {
        let file = written(Duration::from_millis(1500));

        assert!(!file.is_settled(UNIX_EPOCH + Duration::from_secs(1)));
    }

    #[test]
    fn a_time_that_was_set_back_hides_no_change() {
        let mut file = written(Duration::from_millis(1500));
        file.modified = UNIX_EPOCH + Duration::from_millis(500);

        assert!(!file.is_settled(UNIX_EPOCH + Duration::from_millis(1510)));
    }
}
