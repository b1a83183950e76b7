"""Settings: accepted values, their sources, and the errors of invalid ones."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from shoal.errors import SettingsError
from shoal.settings import FIELDS, SECTIONS, TABLES, FrontierSettings, Settings, StoreSettings, load, masked

SECRET = "hunter2"


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Write ./shoal.toml in a folder of the test's own, and work there."""
    monkeypatch.chdir(tmp_path)

    def write(text: str | bytes) -> Path:
        path = tmp_path / "shoal.toml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


def refusal(**arguments: object) -> str:
    with pytest.raises(SettingsError) as caught:
        load(**{"environ": {}, **arguments})  # type: ignore[arg-type]
    return str(caught.value)


def test_without_any_source_the_defaults_apply(write) -> None:
    settings, warnings = load(environ={})
    assert settings == Settings()
    assert warnings == []
    assert settings.store.url == ""
    assert settings.store.shards == 16
    assert settings.frontier.lease_seconds == 60.0


def test_a_flag_overrides_a_variable_the_file_and_the_default_in_this_order(write) -> None:
    write('[store]\nshards = 2\nfolder = "file"\nnamespace = "file"\n')
    environ = {"SHOAL_STORE_SHARDS": "3", "SHOAL_STORE_FOLDER": "variable"}
    store = load(environ=environ, flags={"store.shards": 4}).settings.store
    assert (store.shards, store.folder, store.namespace, store.maxmemory) == (4, "variable", "file", "")


def test_the_store_url_is_taken_from_the_most_specific_variable(write) -> None:
    write('[store]\nurl = "redis://file"\n')
    environ: dict[str, str] = {}
    for variable in ("REDIS_URL", "SHOAL_STORE", "SHOAL_STORE_URL"):
        environ[variable] = f"redis://{variable.lower().replace('_', '-')}"
        assert load(environ=environ).settings.store.url == environ[variable]


def test_two_variables_that_name_different_stores_are_reported(write) -> None:
    (warning,) = load(environ={"SHOAL_STORE": "redis://a", "SHOAL_STORE_URL": f"redis://:{SECRET}@b"}).warnings
    assert "SHOAL_STORE_URL is used" in warning
    assert SECRET not in warning


def test_a_flag_that_was_not_given_changes_nothing(write) -> None:
    assert load(environ={"SHOAL_STORE_SHARDS": "3"}, flags={"store.shards": None}).settings.store.shards == 3


def test_an_empty_variable_counts_as_unset(write) -> None:
    assert load(environ={"SHOAL_STORE_SHARDS": "", "REDIS_URL": " "}).settings == Settings()


def test_a_flag_may_clear_a_value_of_the_file(write) -> None:
    write('[store]\nurl = "redis://file"\n')
    assert load(environ={}, flags={"store.url": ""}).settings.store.url == ""


def test_text_from_variables_and_flags_becomes_a_number(write) -> None:
    settings, _ = load(environ={"SHOAL_FRONTIER_LEASE_SECONDS": " 7.5\n"}, flags={"frontier.blames": "5"})
    assert settings.frontier.lease_seconds == 7.5
    assert settings.frontier.blames == 5


def test_a_path_may_be_given_as_a_path(write) -> None:
    assert load(environ={}, flags={"store.folder": Path("here")}).settings.store.folder == "here"


@pytest.mark.parametrize("key", FIELDS)
def test_every_setting_can_be_given_in_each_way(write, key: str) -> None:
    other = {str: "redis://elsewhere", int: 7, float: 7.5}
    special = {
        "store.namespace": "mine",
        "worker.health": "0.0.0.0:8081",
        "store.maxmemory": "2gb",
        "fetch.proxy": "http://elsewhere:3128",
        "telemetry.url": "http://elsewhere:4318",
        "telemetry.traces": 0.5,
        "api.indexnow": "news,shop:docs",
    }
    field = FIELDS[key]
    value = special.get(key, other[type(field.default)])
    section, name = key.split(".")
    write(f"[{section}]\n{name} = {msgspec.json.encode(value).decode()}\n")
    from_file = load(environ={}).settings
    write("")
    assert getattr(getattr(from_file, section), name) == value
    assert load(environ={field.variable: str(value)}).settings == from_file
    assert load(environ={}, flags={key: value}).settings == from_file


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("store.url", "localhost:6379"),
        ("store.folder", ""),
        ("store.folder", "a\0b"),
        ("store.namespace", "Shoal"),
        ("store.namespace", "a" * 17),
        ("store.namespace", ""),
        ("store.namespace", "a\n"),
        ("store.shards", 0),
        ("store.shards", 1025),
        ("store.shards", 1.5),
        ("store.shards", True),
        ("store.shards", "many"),
        ("store.maxmemory", "4 elephants"),
        ("store.maxmemory", "0"),
        ("store.timeout_seconds", -1),
        ("store.timeout_seconds", float("nan")),
        ("frontier.lease_seconds", 0.5),
        ("frontier.lease_seconds", 3601),
        ("frontier.lease_seconds", float("inf")),
        ("frontier.lease_seconds", "nan"),
        ("frontier.batch_seconds", 0),
        ("frontier.expiries", 0),
        ("frontier.blames", -3),
        ("frontier.host_failures", []),
    ],
)
def test_a_value_out_of_range_is_refused_with_the_allowed_range(write, key: str, value: object) -> None:
    message = refusal(flags={key: value})
    assert message.startswith(f"{key} is ")
    assert FIELDS[key].expects in message


def test_an_error_names_key_value_and_source(write) -> None:
    path = write("[store]\nshards = 0\n")
    assert refusal() == "store.shards is 0 in shoal.toml, but must be a whole number from 1 to 1024."
    assert str(path) in refusal(file=path)
    write("")
    assert "'x' in the variable SHOAL_FRONTIER_BLAMES" in refusal(environ={"SHOAL_FRONTIER_BLAMES": "x"})
    assert "'x' on the command line" in refusal(flags={"frontier.blames": "x"})


def test_an_invalid_value_is_an_error_even_if_it_is_overridden(write) -> None:
    write("[store]\nshards = 0\n")
    assert "shoal.toml" in refusal(flags={"store.shards": 8})


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("[store]\nshard = 1\n", "unknown key store.shard; did you mean store.shards?"),
        ("[stroe]\n", "unknown section stroe; did you mean store?"),
        ("shards = 4\n", "unknown key shards; did you mean store.shards?"),
        ("[store]\nblames = 4\n", "unknown key store.blames; did you mean frontier.blames?"),
        ("[store]\nzzzz = 4\n", "unknown key store.zzzz; known names are store.folder, store.maxmemory, "),
        ("[store.url]\na = 1\n", "store.url is {'a': 1} in shoal.toml"),
        ("store = 4\n", "store is 4 in shoal.toml, but must be a table: write [store]."),
    ],
)
def test_an_unknown_key_in_the_file_is_an_error_with_a_suggestion(write, text: str, meant: str) -> None:
    write(text)
    assert meant in refusal()


def test_an_unknown_flag_is_refused(write) -> None:
    assert "did you mean store.shards?" in refusal(flags={"store.shard": 1})


def test_unknown_variables_only_warn_and_their_values_are_not_shown(write) -> None:
    environ = {"SHOAL_PORT_6379_TCP": SECRET, "SHOAL_SERVICE_HOST": SECRET, "SHOAL_STORE_SHARD": SECRET, "OTHER": "x"}
    settings, warnings = load(environ=environ)
    assert settings == Settings()
    assert warnings == [
        "The variable SHOAL_STORE_SHARD is not a setting and is ignored; did you mean SHOAL_STORE_SHARDS?",
        "The variables SHOAL_PORT_6379_TCP, SHOAL_SERVICE_HOST are not settings and are ignored.",
    ]


def test_a_named_file_must_exist_and_the_default_one_need_not(write, tmp_path: Path) -> None:
    assert load(environ={}).settings == Settings()
    assert "nowhere.toml does not exist" in refusal(file=tmp_path / "nowhere.toml")


def test_a_file_that_cannot_be_read_is_refused(write, tmp_path: Path) -> None:
    assert "cannot be read" in refusal(file=tmp_path)


def test_broken_toml_is_refused_with_its_line(write) -> None:
    write("[store]\nshards = \n")
    assert "line 2" in refusal()


def test_a_file_that_is_not_utf8_is_refused(write) -> None:
    write(b'[store]\nfolder = "\xe9"\n')
    assert "not UTF-8" in refusal()


def test_a_byte_order_mark_is_accepted(write) -> None:
    write(b"\xef\xbb\xbf[store]\nshards = 2\n")
    assert load(environ={}).settings.store.shards == 2


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:{SECRET}@store/0",
        f"redis://me:a/{SECRET}@b@store:1/0",
        f"me:{SECRET}@store:6379",
        f"redis://store/0?password={SECRET}&db=1",
        f"redis+sentinel://store/primary?sentinel_password={SECRET}",
    ],
)
def test_a_password_is_never_shown(write, url: str) -> None:
    assert SECRET not in masked(url)
    assert "store" in masked(url)
    assert SECRET not in refusal(flags={"store.url": f"{url}\n"})
    assert SECRET not in refusal(environ={"SHOAL_STORE": f"!{url}"})
    write(f"[store]\nurl = [{msgspec.json.encode(url).decode()}]\n")
    assert SECRET not in refusal()
    if "://" in url:
        settings = Settings(store=StoreSettings(url=url))
        assert settings.store.url == url
        assert SECRET not in repr(settings) + str(settings.store)


def test_a_section_built_in_code_is_checked_too() -> None:
    with pytest.raises(SettingsError, match=r"store\.shards is 0 in the code"):
        StoreSettings(shards=0)
    with pytest.raises(SettingsError, match="lease_seconds"):
        msgspec.structs.replace(FrontierSettings(), lease_seconds=0)


def test_settings_are_frozen() -> None:
    with pytest.raises(AttributeError):
        Settings().store.shards = 3  # type: ignore[misc]


def test_every_setting_has_a_description_of_one_line() -> None:
    assert {section.section for section in SECTIONS} | set(TABLES) == set(Settings.__struct_fields__)
    for field in FIELDS.values():
        assert field.description.endswith("."), field.key
        assert "\n" not in field.description, field.key
        assert field.expects, field.key


def test_the_environment_of_the_process_is_the_default(write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_STORE_NAMESPACE", "own")
    assert load().settings.store.namespace == "own"


def test_tables_with_user_defined_names_are_read_and_never_shown(write) -> None:
    write('[outputs]\nmain = "postgresql://u:hush@db/x"\n[spiders]\nbooks = "books.py:Books"\n')
    settings = load(environ={}).settings
    assert settings.outputs == {"main": "postgresql://u:hush@db/x"}
    assert settings.spiders == {"books": "books.py:Books"}
    assert "hush" not in repr(settings)
    write("[outputs]\nmain = 3\n")
    assert refusal() == "outputs.main in shoal.toml must be text between quotes."
    write('[tokens]\n"a b" = "x"\n')
    assert refusal().startswith("[tokens] has the name 'a b' in shoal.toml: use ")


def test_an_old_name_of_a_setting_is_accepted_with_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "shoal.toml"
    file.write_text("[store]\npatience_seconds = 7\n")
    loaded = load(file=file, environ={})
    assert loaded.settings.store.timeout_seconds == 7
    assert loaded.warnings == [f"{file} has the old key store.patience_seconds; its new name is store.timeout_seconds."]
    loaded = load(file=file, environ={"SHOAL_STORE_PATIENCE_SECONDS": "8"})
    assert loaded.settings.store.timeout_seconds == 8
    assert "SHOAL_STORE_TIMEOUT_SECONDS" in loaded.warnings[1]
    loaded = load(file=file, environ={"SHOAL_STORE_PATIENCE_SECONDS": "8", "SHOAL_STORE_TIMEOUT_SECONDS": "9"})
    assert loaded.settings.store.timeout_seconds == 9
    file.write_text("[store]\npatience_seconds = 7\ntimeout_seconds = 6\n")
    with pytest.raises(SettingsError, match=r"unknown key store\.patience_seconds"):
        load(file=file, environ={})


def test_a_variable_may_name_a_file_with_the_value(write, tmp_path: Path) -> None:
    secret = tmp_path / "url"
    secret.write_text(f"redis://:{SECRET}@store:6379\n")
    settings, warnings = load(environ={"SHOAL_STORE_FILE": str(secret)})
    assert settings.store.url == f"redis://:{SECRET}@store:6379"
    assert warnings == []
    assert load(environ={"REDIS_URL_FILE": str(secret)}).settings == settings
    assert load(environ={"SHOAL_STORE_URL": "redis://own", "REDIS_URL_FILE": str(secret)}).settings.store.url == (
        "redis://own"
    )


def test_a_file_of_a_variable_that_cannot_be_read_is_an_error(write, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    assert refusal(environ={"SHOAL_STORE_FILE": str(missing)}) == (
        f"The file {missing} of SHOAL_STORE_FILE cannot be read: No such file or directory."
    )
    missing.write_bytes(b"\xff")
    assert refusal(environ={"SHOAL_STORE_FILE": str(missing)}).endswith("is not UTF-8 text.")
    both = refusal(environ={"SHOAL_STORE": f"redis://:{SECRET}@a", "SHOAL_STORE_FILE": str(missing)})
    assert both == "The variables SHOAL_STORE and SHOAL_STORE_FILE are both set; remove one."


def test_entries_of_tables_may_be_variables_or_files(write, tmp_path: Path) -> None:
    write('[outputs]\nresults = "file.db"\nother = "other.db"\n')
    secret = tmp_path / "token"
    secret.write_text("admin sha256:00\n")
    environ = {"SHOAL_OUTPUTS_RESULTS": "h.db", "SHOAL_TOKENS_OPS_FILE": str(secret), "SHOAL_SPIDERS_A": ""}
    settings, warnings = load(environ=environ)
    assert settings.outputs == {"results": "h.db", "other": "other.db"}
    assert settings.tokens == {"ops": "admin sha256:00"}
    assert settings.spiders == {}
    assert warnings == []
