//! Telling the versions of a file apart without reading it.

use std::fs::Metadata;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longer than the granularity of file times with fractions of a second, which is at most 10 ms, in kernels
/// and in exFAT.
const FINE_STEP: Duration = Duration::from_millis(50);

/// Longer than the granularity of file times in whole seconds, which is at most 2 s, in FAT.
const COARSE_STEP: Duration = Duration::from_secs(3);

/// The version of a file: it changes when the file is written or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// When the content was last written.
    pub modified: SystemTime,
    /// When the file or its metadata last changed, which no program can set back; `modified` where the system
    /// does not record it.
    pub changed: SystemTime,
    /// The length in bytes.
    pub length: u64,
    /// The inode number; zero on systems without one.
    pub number: u64,
}

impl Version {
    /// Returns the version of a file; `None` if the system records no times.
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

    /// Returns whether every change after `moment` changes the version.
    ///
    /// File times have a granularity, and two changes within one step leave the same times. The length may be
    /// the same too, and even the inode number, because a freed number is given to the next file.
    pub(crate) fn is_stable(&self, moment: SystemTime) -> bool {
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
    fn a_file_is_stable_once_the_clock_has_moved_on() {
        let at = Duration::from_millis(1500);
        let file = written(at);

        for (age, stable) in [(0, false), (50, false), (51, true)] {
            let moment = UNIX_EPOCH + at + Duration::from_millis(age);
            assert_eq!(file.is_stable(moment), stable, "after {age} ms");
        }
    }

    #[test]
    fn a_clock_of_whole_seconds_is_given_longer() {
        let at = Duration::from_secs(1);
        let file = written(at);

        for (age, stable) in [(51, false), (3000, false), (3001, true)] {
            let moment = UNIX_EPOCH + at + Duration::from_millis(age);
            assert_eq!(file.is_stable(moment), stable, "after {age} ms");
        }
    }

    #[test]
    fn a_file_of_the_future_is_never_stable() {
        let file = written(Duration::from_millis(1500));

        assert!(!file.is_stable(UNIX_EPOCH + Duration::from_secs(1)));
    }

    #[test]
    fn a_time_that_was_set_back_hides_no_change() {
        let mut file = written(Duration::from_millis(1500));
        file.modified = UNIX_EPOCH + Duration::from_millis(500);

        assert!(!file.is_stable(UNIX_EPOCH + Duration::from_millis(1510)));
    }
}
