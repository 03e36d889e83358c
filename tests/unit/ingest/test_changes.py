"""What changed in a dataset since it was last read."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lazyrag.errors import ConfigError
from lazyrag.ingest.dataset import Changes, ComparedFile, KnownFile, compare
from lazyrag.loaders.directory import FoundFile, Signature, find_files, hash_file

LONG_AGO_NS = 1_600_000_000 * 10**9
SECOND = 10**9
KINDS = ("added", "changed", "reconfigured", "touched", "unchanged", "moved")


def file(identity: str, size: int = 3, mtime_ns: int = LONG_AGO_NS, inode: int = 1) -> FoundFile:
    """A file that is found."""
    return FoundFile(identity, Path(identity), Signature(size, mtime_ns, inode))


def known_as(
    found: FoundFile, content: str, *, seen_ns: int = LONG_AGO_NS + 60 * SECOND, mark: str = ""
) -> KnownFile:
    """What the ledger knows of a file."""
    return KnownFile(found.identity, found.signature, content, seen_ns, mark)


def to_known(one: ComparedFile, seen_ns: int) -> KnownFile:
    """What the ledger knows of a file after it was ingested."""
    return KnownFile(
        one.file.identity, one.file.signature, one.content_hash, seen_ns, one.config_hash
    )


def compared(found, known, contents=None, *, unlisted=(), marks=None, max_deleted=0.5) -> Changes:
    """Compare files; those without a content cannot be hashed."""

    def content_hash(one: FoundFile) -> str:
        if one.identity not in (contents or {}):
            raise PermissionError(13, "Permission denied", one.identity)
        return contents[one.identity]

    return compare(
        found,
        known,
        unlisted=unlisted,
        content_hash=content_hash,
        config_hash=lambda one: (marks or {}).get(one.identity, ""),
        max_deleted=max_deleted,
    )


def names(changes: Changes) -> dict[str, list[str]]:
    """The identities in each kind of changes, empty kinds left out; moved ones as ``old > new``."""
    sorted_out = {
        kind: [one.file.identity for one in getattr(changes, kind)] for kind in KINDS[:-1]
    }
    sorted_out["moved"] = [f"{one.before.identity} > {one.file.identity}" for one in changes.moved]
    sorted_out["unreadable"] = [one.identity for one, _ in changes.unreadable]
    for kind in ("deleted", "withheld", "unseen"):
        sorted_out[kind] = [one.identity for one in getattr(changes, kind)]
    return {kind: identities for kind, identities in sorted_out.items() if identities}


def test_a_new_dataset_is_all_added():
    """Where nothing is known all files are added, each with its hash, mark and signature."""
    one = file("a.txt")
    changes = compared([one], [], {"a.txt": "tea"}, marks={"a.txt": "said"})
    assert changes == Changes(added=(ComparedFile(one, "tea", "said"),))
    assert to_known(changes.added[0], 7) == KnownFile("a.txt", one.signature, "tea", 7, "said")


def test_nothing_at_all():
    """No files, found or known, are no changes."""
    assert compared([], []) == Changes()


@pytest.mark.slow
def test_unchanged_files_are_not_hashed():
    """Files whose size, times and inodes are those known long since are unchanged without one being
    read.
    """
    found = [file(f"{number:05}.txt", inode=number) for number in range(10_000)]
    changes = compared(found, [known_as(one, "tea") for one in found])
    assert len(changes.unchanged) == 10_000
    assert changes == Changes(unchanged=changes.unchanged)


@pytest.mark.parametrize("changed", [{"size": 4}, {"mtime_ns": LONG_AGO_NS + 1}, {"inode": 2}])
def test_another_signature_casts_doubt(changed):
    """A file of another size, time or inode is hashed: it is changed with another content, else
    only touched.
    """
    before = known_as(file("a.txt"), "tea")
    assert names(compared([file("a.txt", **changed)], [before], {"a.txt": "coffee"})) == {
        "changed": ["a.txt"]
    }
    changes = compared([file("a.txt", **changed)], [before], {"a.txt": "tea"})
    assert changes == Changes(touched=(ComparedFile(file("a.txt", **changed), "tea", "", before),))


@pytest.mark.parametrize(
    ("age_s", "hashed"), [(-3600, True), (0, True), (1.999, True), (2, False), (60, False)]
)
def test_a_file_modified_just_before_it_was_seen_is_in_doubt(age_s, hashed):
    """Within two seconds, or with a time in the future, it may have changed again without its time
    showing it.
    """
    one = file("a.txt")
    before = known_as(one, "tea", seen_ns=LONG_AGO_NS + int(age_s * SECOND))
    assert before.racy == hashed
    expected = {"changed": ["a.txt"]} if hashed else {"unchanged": ["a.txt"]}
    assert names(compared([one], [before], {"a.txt": "coffee"})) == expected


def test_a_file_without_signature_is_in_doubt():
    """Files that could not be looked at are never the same without being hashed."""
    blind = FoundFile("a.txt", Path("a.txt"))
    assert names(compared([blind], [known_as(blind, "tea")], {"a.txt": "tea"})) == {
        "touched": ["a.txt"]
    }
    assert names(compared([blind], [known_as(file("a.txt"), "tea")], {"a.txt": "tea"})) == {
        "touched": ["a.txt"]
    }
    assert names(compared([file("a.txt")], [known_as(blind, "tea")], {"a.txt": "ink"})) == {
        "changed": ["a.txt"]
    }


def test_another_mark_is_said_of_the_same_content():
    """A file of which the user says something else is reconfigured, unhashed; with other content it
    is changed.
    """
    one = file("a.txt")
    before = known_as(one, "tea", mark="green")
    changes = compared([one], [before], marks={"a.txt": "black"})
    assert changes == Changes(reconfigured=(ComparedFile(one, "tea", "black", before),))
    other = file("a.txt", size=6)
    assert names(compared([other], [before], {"a.txt": "coffee"}, marks={"a.txt": "black"})) == {
        "changed": ["a.txt"]
    }
    assert names(compared([other], [before], {"a.txt": "tea"}, marks={"a.txt": "black"})) == {
        "reconfigured": ["a.txt"]
    }


def test_a_file_that_cannot_be_read():
    """It is reported with its error, and a known one is neither changed nor deleted."""
    found = [file("new.txt"), file("old.txt", inode=2)]
    changes = compared(found, [known_as(file("old.txt"), "tea")])
    assert names(changes) == {"unreadable": ["new.txt", "old.txt"]}
    assert [error.filename for _, error in changes.unreadable] == ["new.txt", "old.txt"]


def test_other_errors_are_not_swallowed():
    """An error in making a mark, even one of the system, is the caller's; so is a fault in
    hashing.
    """

    def fail(_):
        raise FileNotFoundError("no loader")

    def crash(_):
        raise ZeroDivisionError

    here = {"unlisted": (), "max_deleted": 0.5}
    with pytest.raises(FileNotFoundError, match="no loader"):
        compare([file("a.txt")], [], content_hash=lambda _: "tea", config_hash=fail, **here)
    with pytest.raises(ZeroDivisionError):
        compare([file("a.txt")], [], content_hash=crash, config_hash=lambda _: "", **here)


def test_a_moved_file_carries_where_it_came_from():
    """A new identity with the content of one that is gone is moved, and the old one is not
    deleted.
    """
    before = known_as(file("old/a.txt"), "tea", mark="x")
    one = file("new/b.txt", inode=9)
    changes = compared([one], [before], {"new/b.txt": "tea"})
    assert changes == Changes(moved=(ComparedFile(one, "tea", "", before),))
    assert to_known(changes.moved[0], 5).identity == "new/b.txt"


def test_a_copy_is_not_moved():
    """A new file with the content of one that is still there is added."""
    one = file("a.txt")
    assert names(compared([one, file("b.txt")], [known_as(one, "tea")], {"b.txt": "tea"})) == {
        "added": ["b.txt"],
        "unchanged": ["a.txt"],
    }


def test_files_with_one_content_are_paired_by_name_first():
    """Of several moved files with one content each goes to its own name, the rest in order of
    identity.
    """
    known = [known_as(file(f"old/{name}"), "licence") for name in ("4", "3", "2", "1")]
    found = [file(f"new/{name}") for name in ("6", "2", "5", "1", "0")]
    changes = compared(found, known, {one.identity: "licence" for one in found})
    assert names(changes) == {
        "added": ["new/6"],
        "moved": ["old/2 > new/2", "old/4 > new/5", "old/1 > new/1", "old/3 > new/0"],
    }


def test_empty_files_are_not_moved():
    """All empty files are alike: one that is gone and a new one have nothing to do with each
    other.
    """
    empty, other = file("a.txt", size=0), file("b.txt")
    changes = compared(
        [file("c.txt", size=0), other], [known_as(empty, ""), known_as(other, "x")], {"c.txt": ""}
    )
    assert names(changes) == {"added": ["c.txt"], "unchanged": ["b.txt"], "deleted": ["a.txt"]}


def test_what_lies_in_a_folder_that_cannot_be_listed_is_kept():
    """Files beneath it are unseen, not deleted, and no new file is taken for one of them; "ab" is
    not in "a".
    """
    known = [
        known_as(file(name), name[-1]) for name in ("a", "a/x", "a/b/y", "ab/z", "a.txt", "c/link")
    ]
    changes = compared([file("new")], known, {"new": "x"}, unlisted=["a", "c/link"])
    assert names(changes) == {
        "added": ["new"],
        "unseen": ["a", "a/b/y", "a/x", "c/link"],
        "deleted": ["a.txt", "ab/z"],
    }


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("known", "left", "max_deleted", "kind"),
    [
        (1, 0, 0.5, "withheld"),  # all of them
        (1, 0, 1.0, "deleted"),
        (10_000, 0, 0.999, "withheld"),
        (10_000, 0, 1, "deleted"),
        (11, 1, 0.0, "deleted"),  # ten are few
        (12, 1, 0.0, "withheld"),
        (22, 11, 0.5, "deleted"),  # half is not more than half
        (23, 11, 0.5, "withheld"),
        (50, 21, 0.58, "deleted"),  # 29 of 50; as floating-point numbers 0.58 * 50 is less than 29
        (50, 20, 0.58, "withheld"),
    ],
)
def test_many_deletions_at_once_are_withheld(known, left, max_deleted, kind):
    """They are if all files are gone, or more than ten and more than the share; what is left is not
    concerned.
    """
    files = [file(f"{number:05}") for number in range(known)]
    changes = compared(
        files[:left], [known_as(one, one.identity) for one in files], max_deleted=max_deleted
    )
    assert names(changes).get(kind) == [one.identity for one in files[left:]]
    assert len(changes.unchanged) == left
    assert not (changes.deleted and changes.withheld)


def test_a_moved_dataset_is_not_withheld():
    """Renaming the folder in which all files lie deletes none of them."""
    known = [known_as(file(f"old/{number}"), str(number)) for number in range(20)]
    found = [file(f"new/{number}") for number in range(20)]
    changes = compared(
        found, known, {f"new/{number}": str(number) for number in range(20)}, max_deleted=0.0
    )
    assert len(changes.moved) == 20
    assert changes == Changes(moved=changes.moved)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan"), 50])
def test_a_share_is_from_0_to_1(share):
    """Another number is refused: 50 does not mean per cent."""
    with pytest.raises(ConfigError, match=r"max_deleted must be .*from 0 to 1"):
        compared([], [], max_deleted=share)


# Made-up states: what is found and what is known, both of few identities, contents and times, so
# that they meet.

_identities = st.sampled_from(["a", "b", "x/a", "x/b", "x/y/a", "xy", "z/c"])
_contents = st.sampled_from(["", "1", "22", "33"])
_times = st.sampled_from([LONG_AGO_NS, LONG_AGO_NS + SECOND, LONG_AGO_NS + 2 * SECOND])
_marks = st.sampled_from(["m", "n"])


@st.composite
def _found_states(draw):
    """Files with their contents (None for unreadable) and marks."""
    states = draw(
        st.dictionaries(
            _identities,
            st.tuples(st.none() | _contents, _times, st.integers(1, 2), _marks, st.booleans()),
        )
    )
    found = {}
    for identity, (content, mtime, inode, mark, seen) in sorted(states.items()):
        signature = Signature(len(content or "1"), mtime, inode) if seen else None
        found[identity] = (FoundFile(identity, Path(identity), signature), content, mark)
    return found


@st.composite
def _known_states(draw):
    """What a ledger may know, in any order."""
    states = draw(
        st.dictionaries(
            _identities, st.tuples(_contents, _times, st.integers(1, 2), _times, _marks)
        )
    )
    return [
        KnownFile(identity, Signature(len(content), mtime, inode), content, seen_ns, mark)
        for identity, (content, mtime, inode, seen_ns, mark) in states.items()
    ]


def model(found, known, unlisted, max_deleted) -> dict[str, list[str]]:
    """The rules one by one, slowly, as names of files."""
    kinds: dict[str, list[str]] = {}
    ledger = {one.identity: one for one in known}
    for identity in sorted(found):
        kinds.setdefault(model_kind(*found[identity], ledger.get(identity)), []).append(identity)

    gone = [identity for identity in sorted(ledger) if identity not in found]
    kinds["unseen"] = [
        one for one in gone if any(Path(one).is_relative_to(folder) for folder in unlisted)
    ]
    gone = [one for one in gone if one not in kinds["unseen"]]
    origins = {}
    for same_name in (True, False):
        for new in list(kinds.get("added", [])):
            one, content, _ = found[new]
            same = [
                old
                for old in gone
                if content == ledger[old].content_hash != "" and one.signature is not None
            ]
            same = [old for old in same if Path(old).name == Path(new).name or not same_name]
            if same:
                origins[new] = same[0]
                gone.remove(same[0])
                kinds["added"].remove(new)
    kinds["moved"] = [f"{origins[new]} > {new}" for new in sorted(origins)]
    kinds["withheld" if gone and len(gone) == len(ledger) and max_deleted < 1 else "deleted"] = gone
    return {kind: identities for kind, identities in kinds.items() if identities}


def model_kind(one, content, mark, old) -> str:
    """What becomes of a file that is found, moves apart."""
    in_doubt = (
        old is None
        or one.signature is None
        or one.signature.size != old.signature.size
        or one.signature.mtime_ns != old.signature.mtime_ns
        or one.signature.inode != old.signature.inode
        or old.seen_ns < old.signature.mtime_ns + 2 * SECOND
    )
    if in_doubt and content is None:
        return "unreadable"
    if old is None:
        return "added"
    if in_doubt and content != old.content_hash:
        return "changed"
    if mark != old.config_hash:
        return "reconfigured"
    return "touched" if in_doubt else "unchanged"


@given(
    _found_states(),
    _known_states(),
    st.sets(st.sampled_from(["x", "x/y", "z"])),
    st.sampled_from([0.0, 0.5, 1.0]),
)
def test_all_files_are_sorted_out_as_by_the_rules(found, known, unlisted, max_deleted):
    """Whatever is found and known, the answer is that of a slow model, and every file stands in one
    kind only.
    """
    files = [one for one, _, _ in found.values()]
    contents = {
        identity: content for identity, (_, content, _) in found.items() if content is not None
    }
    marks = {identity: mark for identity, (_, _, mark) in found.items()}
    changes = compared(
        files, known, contents, unlisted=unlisted, marks=marks, max_deleted=max_deleted
    )
    assert names(changes) == model(found, known, unlisted, max_deleted)
    here = Counter(one.file.identity for kind in KINDS for one in getattr(changes, kind))
    here.update(one.identity for one, _ in changes.unreadable)
    assert here == Counter(found.keys())
    lost = [
        *changes.deleted,
        *changes.withheld,
        *changes.unseen,
        *(one.before for one in changes.moved),
    ]
    assert Counter(one.identity for one in lost) == Counter(
        {one.identity for one in known} - set(found)
    )
    for kind in KINDS[1:]:
        assert all(one.before in known for one in getattr(changes, kind))


class Disk:
    """A file system whose clock ticks every two seconds, and a ledger that is brought up to date by
    comparing.
    """

    def __init__(self):
        self.now_ns = LONG_AGO_NS
        self.files: dict[str, list] = {}  # identity: [content, mtime, inode]
        self.ledger: dict[str, KnownFile] = {}
        self.hashed: list[str] = []

    def write(self, identity: str, content: str) -> None:
        """In place where the file is there, else with an inode that another file may have had
        before.
        """
        taken = {inode for _, _, inode in self.files.values()}
        inode = self.files[identity][2] if identity in self.files else min(set(range(9)) - taken)
        self.files[identity] = [content, self.now_ns // (2 * SECOND) * 2 * SECOND, inode]

    def rename(self, identity: str, to: str) -> None:
        """With its time and inode, over another one if there is one."""
        if identity in self.files:
            self.files[to] = self.files.pop(identity)

    def delete(self, identity: str) -> None:
        """If it is there."""
        self.files.pop(identity, None)

    def wait(self, tenths: int) -> None:
        """Let time pass."""
        self.now_ns += tenths * SECOND // 10

    def sync(self, *, before_hashing=None, after_hashing=None) -> Changes:
        """Look, hash, and write down what was found; files may be renewed before or after they are
        hashed.
        """
        seen_ns = self.now_ns
        found = [
            FoundFile(identity, Path(identity), Signature(len(content), mtime, inode))
            for identity, (content, mtime, inode) in sorted(self.files.items())
        ]
        self.hashed = []

        def content_hash(one: FoundFile) -> str:
            self.hashed.append(one.identity)
            self.wait(3)
            if before_hashing:
                self.write(one.identity, before_hashing)
            content = self.files[one.identity][0]
            if after_hashing:
                self.write(one.identity, after_hashing)
            return content

        changes = compare(
            found,
            self.ledger.values(),
            unlisted=(),
            content_hash=content_hash,
            config_hash=lambda _: "",
            max_deleted=1.0,
        )
        for kind in KINDS:
            for one in getattr(changes, kind):
                if kind == "moved":
                    del self.ledger[one.before.identity]
                if kind != "unchanged":
                    self.ledger[one.file.identity] = to_known(one, seen_ns)
        for one in changes.deleted:
            del self.ledger[one.identity]
        return changes

    def learned(self) -> dict[str, str]:
        """The contents that the ledger believes in."""
        return {identity: one.content_hash for identity, one in self.ledger.items()}

    def truth(self) -> dict[str, str]:
        """The contents that are there."""
        return {identity: content for identity, (content, _, _) in self.files.items()}


_positions = st.sampled_from(["a", "b", "x/a"])
_texts = st.sampled_from(["tea", "ink", "milk", ""])
_steps = st.one_of(
    st.tuples(st.just("write"), _positions, _texts),
    st.tuples(st.just("rename"), _positions, _positions),
    st.tuples(st.just("delete"), _positions),
    st.tuples(st.just("wait"), st.sampled_from([1, 7, 20, 50])),
    st.tuples(
        st.just("sync"),
        st.sampled_from([None, "tea", "ink"]),
        st.sampled_from([None, "tea", "ink"]),
    ),
)


@given(st.lists(_steps, max_size=14))
@example([("write", "a", "tea"), ("sync", None, None), ("write", "a", "ink")])
@example([("write", "a", "tea"), ("sync", None, "ink")])
@example([("write", "a", "tea"), ("sync", "ink", "tea"), ("wait", 1), ("sync", None, "ink")])
def test_no_change_is_ever_missed(steps):
    """Files written whenever, even in one tick of the clock or while hashed, are known after the
    next quiet look.
    """
    disk = Disk()
    for name, *arguments in steps:
        if name == "sync":
            disk.sync(before_hashing=arguments[0], after_hashing=arguments[1])
        else:
            getattr(disk, name)(*arguments)
    disk.sync()
    assert disk.learned() == disk.truth()
    assert sorted(set(disk.hashed)) == sorted(disk.hashed)


@given(st.lists(_steps, max_size=14))
def test_doubt_passes(steps):
    """Two seconds after the last change one more look settles everything: the next one hashes
    nothing.
    """
    disk = Disk()
    for name, *arguments in steps:
        if name != "sync":
            getattr(disk, name)(*arguments)
        else:
            disk.sync(before_hashing=arguments[0], after_hashing=arguments[1])
    disk.wait(20)
    disk.sync()
    changes = disk.sync()
    assert disk.hashed == []
    assert names(changes) == ({"unchanged": sorted(disk.files)} if disk.files else {})


@given(_found_states(), _known_states(), st.randoms(use_true_random=False))
def test_the_order_does_not_matter(found, known, random):
    """Whatever order files are found and known in, the same becomes of each."""
    files = [one for one, _, _ in found.values()]
    contents = {
        identity: content for identity, (_, content, _) in found.items() if content is not None
    }
    expected = names(compared(files, known, contents))
    random.shuffle(files)
    random.shuffle(known)
    shuffled = names(compared(files, known, contents))
    assert {kind: sorted(one) for kind, one in shuffled.items()} == {
        kind: sorted(one) for kind, one in expected.items()
    }


class Ledger:
    """A real folder, and what was known of it after the last look."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.known: dict[str, KnownFile] = {}
        self.hashed: list[str] = []

    def look(self, *, max_deleted: float = 0.5) -> dict[str, list[str]]:
        """Compare, write down what was found, and name what changed."""
        listing = find_files(self.folder)
        self.hashed = []

        def content_hash(one: FoundFile) -> str:
            self.hashed.append(one.identity)
            return hash_file(one.path)

        changes = compare(
            listing.files,
            self.known.values(),
            unlisted=listing.unreadable,
            content_hash=content_hash,
            config_hash=lambda _: "",
            max_deleted=max_deleted,
        )
        sorted_out = names(changes)
        for one in (*changes.deleted, *(moved.before for moved in changes.moved)):
            del self.known[one.identity]
        for kind in KINDS:
            for one in getattr(changes, kind):
                self.known[one.file.identity] = to_known(one, listing.seen_ns)
        sorted_out.pop("unchanged", None)
        return sorted_out


def age(path: Path) -> None:
    """Let a file be one that was last modified long ago."""
    os.utime(path, ns=(LONG_AGO_NS, LONG_AGO_NS))


@pytest.fixture
def ledger(folder):
    """A folder of three old files that is known already."""
    root = folder({"a.txt": "green tea", "sub/b.txt": "black tea", "sub/c.txt": "white tea"})
    for name in ("a.txt", "sub/b.txt", "sub/c.txt"):
        age(root / name)
    made = Ledger(root)
    assert made.look() == {"added": ["a.txt", "sub/b.txt", "sub/c.txt"]}
    assert made.look() == {}
    assert made.hashed == []
    return made


def test_an_edited_file(ledger):
    """A file that was written anew is changed; of the others none is read."""
    (ledger.folder / "a.txt").write_text("green tea, 80 degrees", encoding="utf-8")
    assert ledger.look() == {"changed": ["a.txt"]}
    assert ledger.hashed == ["a.txt"]


def test_a_file_edited_twice_in_a_moment(ledger):
    """An edit of the same length, right after a look and with the time put back to what was seen,
    is found.
    """
    path = ledger.folder / "a.txt"
    path.write_text("green ink", encoding="utf-8")
    assert ledger.look() == {"changed": ["a.txt"]}
    seen = path.stat().st_mtime_ns
    path.write_text("black ink", encoding="utf-8")
    os.utime(path, ns=(seen, seen))
    assert ledger.look() == {"changed": ["a.txt"]}


def test_an_old_file_edited_with_its_time_put_back(ledger):
    """The limit of looking: same length, written in place, and with its old time it passes for
    unchanged.
    """
    (ledger.folder / "a.txt").write_text("green ink", encoding="utf-8")
    age(ledger.folder / "a.txt")
    assert ledger.look() == {}


def test_a_file_replaced_with_its_time_put_back(ledger):
    """A file of the same length and time that was renamed over another, as editors and rsync do, is
    found.
    """
    new = ledger.folder.parent / "new.txt"
    new.write_text("green ink", encoding="utf-8")
    age(new)
    new.replace(ledger.folder / "a.txt")
    assert ledger.look() == {"changed": ["a.txt"]}


def test_a_touched_file_is_hashed_once(ledger):
    """A file with a new time and its old content is touched, and known by its new time from then
    on.
    """
    os.utime(ledger.folder / "a.txt", ns=(LONG_AGO_NS, LONG_AGO_NS + SECOND))
    assert ledger.look() == {"touched": ["a.txt"]}
    assert ledger.look() == {}
    assert ledger.hashed == []


def test_a_dataset_copied_elsewhere(ledger, tmp_path):
    """A copy that keeps the times has other inodes: all of it is hashed once, and nothing of it is
    changed.
    """
    shutil.copytree(ledger.folder, tmp_path / "copy")
    ledger.folder = tmp_path / "copy"
    assert ledger.look() == {"touched": ["a.txt", "sub/b.txt", "sub/c.txt"]}
    assert ledger.look() == {}


def test_moved_copied_and_deleted_files(ledger):
    """A renamed folder moves its files, a copy is added, a file that is removed is deleted."""
    (ledger.folder / "sub").rename(ledger.folder / "other")
    assert ledger.look() == {"moved": ["sub/b.txt > other/b.txt", "sub/c.txt > other/c.txt"]}
    shutil.copy2(ledger.folder / "a.txt", ledger.folder / "copy.txt")
    assert ledger.look() == {"added": ["copy.txt"]}
    (ledger.folder / "a.txt").unlink()
    (ledger.folder / "other" / "b.txt").unlink()
    assert ledger.look() == {"deleted": ["a.txt", "other/b.txt"]}


def test_an_emptied_dataset(ledger):
    """If all files are gone, as where a disk is not mounted, none is deleted unless that is
    allowed.
    """
    shutil.rmtree(ledger.folder)
    ledger.folder.mkdir()
    assert ledger.look() == {"withheld": ["a.txt", "sub/b.txt", "sub/c.txt"]}
    assert ledger.look(max_deleted=1.0) == {"deleted": ["a.txt", "sub/b.txt", "sub/c.txt"]}


def test_a_file_that_vanishes_between_look_and_hash(ledger):
    """A file that is gone by the time it is to be hashed is unreadable, the others are not
    concerned.
    """
    path = ledger.folder / "new.txt"
    path.write_text("new", encoding="utf-8")
    (ledger.folder / "other.txt").write_text("other", encoding="utf-8")
    listing = find_files(ledger.folder)
    files = [*listing.files]
    path.unlink()
    changes = compare(
        files,
        ledger.known.values(),
        unlisted=listing.unreadable,
        content_hash=lambda one: hash_file(one.path),
        config_hash=lambda _: "",
        max_deleted=0.5,
    )
    assert isinstance(changes.unreadable[0][1], FileNotFoundError)
    assert {kind: one for kind, one in names(changes).items() if kind != "unchanged"} == {
        "unreadable": ["new.txt"],
        "added": ["other.txt"],
    }


@pytest.mark.skipif(sys.platform != "linux", reason="another system, another longest path")
def test_a_folder_that_cannot_be_listed_for_a_while(tmp_path):
    """Its files stay, and when it can be listed again they are as before, without being hashed."""
    # Paths of 4096 bytes are refused, also to root: so a folder above is given a longer name, and
    # its old one again.
    root = tmp_path / "short" / "dataset"
    deep = root
    while len(os.fsencode(deep)) < 3950:
        deep /= "d" * 99
    deep.mkdir(parents=True)
    for path in (root / "a.txt", root / "b.txt", deep / "c.txt"):
        path.write_text(path.name, encoding="utf-8")
        age(path)
    ledger = Ledger(root)
    assert len(ledger.look()["added"]) == 3
    long = (tmp_path / "short").rename(tmp_path / ("l" * 200))
    (long / "dataset" / "b.txt").unlink()
    ledger.folder = long / "dataset"
    identity = (deep / "c.txt").relative_to(root).as_posix()
    assert ledger.look() == {"unseen": [identity], "deleted": ["b.txt"]}
    long.rename(tmp_path / "short")
    ledger.folder = root
    assert ledger.look() == {}
    assert set(ledger.known) == {"a.txt", identity}
    assert ledger.hashed == []
