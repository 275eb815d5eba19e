//! Prompts in a directory.

use std::fs;
use std::path::PathBuf;

use dotprompt::{Data, DirStore, Dotprompt, ErrorKind, PromptRef, PromptStore, StoreErrorKind};

/// A new folder for one test.
fn folder(test: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join("dotprompt-store")
        .join(test);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the folder can be created");
    folder
}

fn write(folder: &std::path::Path, file: &str, content: &str) {
    let path = folder.join(file);
    let parent = path.parent().expect("a file is in a folder");
    fs::create_dir_all(parent).expect("the folder can be created");
    fs::write(path, content).expect("the file can be written");
}

#[test]
fn names_have_folders_and_the_last_dot_separates_the_variant() {
    let folder = folder("names");
    for file in [
        "greet.prompt",
        "greet.formal.prompt",
        "a/b/c.prompt",
        "x.y.z.prompt",
        "_tone.prompt",
        "a/_foot.v.prompt",
    ] {
        write(&folder, file, "x");
    }
    write(&folder, "notes.txt", "x");
    write(&folder, ".hidden/h.prompt", "x");
    let store = DirStore::new(&folder);

    let describe = |found: Vec<PromptRef>| -> Vec<(String, Option<String>)> {
        found
            .into_iter()
            .map(|prompt| (prompt.name, prompt.variant))
            .collect()
    };
    let own = |name: &str, variant: Option<&str>| (name.to_owned(), variant.map(str::to_owned));
    let prompts = [
        own("a/b/c", None),
        own("greet", None),
        own("greet", Some("formal")),
        own("x.y", Some("z")),
    ];
    assert_eq!(describe(store.list().unwrap()), prompts);
    assert_eq!(
        describe(store.list_partials().unwrap()),
        [own("a/foot", Some("v")), own("tone", None)]
    );
}

#[test]
fn the_version_is_the_start_of_the_contents_sha_1() {
    let folder = folder("version");
    write(&folder, "p.prompt", "abc");
    let store = DirStore::new(&folder);

    assert_eq!(store.list().unwrap()[0].version.as_deref(), Some("a9993e36"));
    assert!(store.load(&PromptRef::new("p").version("a9993e36")).is_ok());
    let error = store.load(&PromptRef::new("p").version("00000000")).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::VersionMismatch);
    assert_eq!(error.to_string(), "prompt 'p' has version a9993e36, not 00000000");
}

#[test]
fn saved_prompts_are_loaded_and_deleted_ones_are_gone() {
    let store = DirStore::new(folder("save").join("not/yet/there"));
    let prompt = PromptRef::new("team/greet").variant("formal");

    let version = store.save(&prompt, "Good day").unwrap();
    let stored = store.load(&prompt).unwrap();
    assert_eq!((stored.source.as_str(), &stored.version), ("Good day", &version));
    assert_eq!(
        store.load(&PromptRef::new("team/greet")).unwrap_err().kind(),
        StoreErrorKind::NotFound
    );

    store.delete(&prompt).unwrap();
    assert_eq!(store.load(&prompt).unwrap_err().kind(), StoreErrorKind::NotFound);
    assert_eq!(
        store.delete(&prompt).unwrap_err().kind(),
        StoreErrorKind::NotFound
    );

    store.save_partial(&PromptRef::new("tone"), "Be kind").unwrap();
    assert_eq!(
        store.load_partial(&PromptRef::new("tone")).unwrap().source,
        "Be kind"
    );
    store.delete_partial(&PromptRef::new("tone")).unwrap();
}

#[test]
fn names_that_lead_out_of_the_directory_are_refused_for_reading_and_writing() {
    let folder = folder("escape");
    write(&folder, "secret.prompt", "secret");
    let store = DirStore::new(folder.join("inner"));
    fs::create_dir_all(folder.join("inner")).unwrap();
    for name in [
        "../secret",
        "a/../../secret",
        "%2e%2e/secret",
        "/secret",
        "..\\secret",
        "",
    ] {
        let prompt = PromptRef::new(name);
        assert_eq!(
            store.load(&prompt).unwrap_err().kind(),
            StoreErrorKind::InvalidName,
            "{name}"
        );
        assert_eq!(
            store.save(&prompt, "x").unwrap_err().kind(),
            StoreErrorKind::InvalidName,
            "{name}"
        );
        assert_eq!(
            store.delete(&prompt).unwrap_err().kind(),
            StoreErrorKind::InvalidName,
            "{name}"
        );
    }
    let variant = PromptRef::new("a").variant("../../secret");
    assert_eq!(
        store.load(&variant).unwrap_err().kind(),
        StoreErrorKind::InvalidName
    );
}

#[cfg(unix)]
#[test]
fn a_link_that_leads_out_of_the_directory_is_not_followed() {
    let folder = folder("link");
    write(&folder, "outside/secret.prompt", "secret");
    fs::create_dir_all(folder.join("inner")).unwrap();
    std::os::unix::fs::symlink(folder.join("outside"), folder.join("inner/out")).unwrap();
    std::os::unix::fs::symlink(
        folder.join("outside/secret.prompt"),
        folder.join("inner/p.prompt"),
    )
    .unwrap();
    let store = DirStore::new(folder.join("inner"));

    assert_eq!(
        store.load(&PromptRef::new("out/secret")).unwrap_err().kind(),
        StoreErrorKind::InvalidName
    );
    assert_eq!(
        store.load(&PromptRef::new("p")).unwrap_err().kind(),
        StoreErrorKind::InvalidName
    );
    assert_eq!(
        store.save(&PromptRef::new("p"), "x").unwrap_err().kind(),
        StoreErrorKind::InvalidName
    );
    assert_eq!(
        store.save(&PromptRef::new("out/new"), "x").unwrap_err().kind(),
        StoreErrorKind::InvalidName
    );
    assert_eq!(
        fs::read_to_string(folder.join("outside/secret.prompt")).unwrap(),
        "secret"
    );
    assert!(store.list().unwrap().is_empty());
}

#[test]
fn a_prompt_and_its_partials_are_loaded_from_the_store() {
    let folder = folder("load");
    write(
        &folder,
        "team/greet.formal.prompt",
        "---\nmodel: m\n---\n{{> team/tone}} Dear {{name}}{{> nobody}}",
    );
    write(&folder, "team/_tone.prompt", "Be kind.");
    let dotprompt = Dotprompt::new()
        .store(DirStore::new(&folder))
        .define_partial("nobody", "!");

    let prompt = dotprompt
        .load(&PromptRef::new("team/greet").variant("formal"))
        .unwrap();

    assert_eq!(
        prompt.render(&Data::new()).unwrap().messages[0].text(),
        "Be kind. Dear !"
    );
    let metadata = prompt.metadata().unwrap();
    assert_eq!(
        (metadata.name(), metadata.variant()),
        (Some("team/greet"), Some("formal"))
    );
    assert!(metadata.get("version").is_some());
}

#[test]
fn an_error_in_a_stored_prompt_names_the_file() {
    let folder = folder("error");
    write(&folder, "bad.prompt", "\n{{nope 1}}");
    write(&folder, "uses.prompt", "{{> broken}}");
    write(&folder, "_broken.prompt", "{{#if}}");
    let dotprompt = Dotprompt::new().store(DirStore::new(&folder));

    let prompt = dotprompt.load(&PromptRef::new("bad")).unwrap_err().to_string();
    let partial = dotprompt.load(&PromptRef::new("uses")).unwrap_err().to_string();
    let missing = dotprompt.load(&PromptRef::new("gone")).unwrap_err();

    assert!(
        prompt.ends_with("bad.prompt:2:1: unknown helper 'nope'"),
        "{prompt}"
    );
    assert!(partial.contains("_broken.prompt:1:1: "), "{partial}");
    assert!(matches!(missing.kind(), ErrorKind::Store(error) if error.kind() == StoreErrorKind::NotFound));
}
