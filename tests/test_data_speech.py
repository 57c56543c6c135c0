"""Speech: sound files, filter banks, TIMIT's layout, splits, windows, and files that are bad."""

import io
import wave

import numpy as np
import pytest
import scipy.signal
import soundfile
from torch import Generator

from rnade.data.audio import read_audio
from rnade.data.filterbanks import FilterBanks
from rnade.data.speech import (
    CORE_TEST_SPEAKERS,
    find_utterances,
    read_frames,
    split_speech,
    split_timit,
)
from rnade.data.windows import WindowSource, frame_statistics, load_windows
from rnade.exceptions import DataError

RATE = 16_000


def samples(n=4000, seed=0):
    """A gliding tone in noise, as 16-bit samples."""
    rng = np.random.default_rng(seed)
    t = np.arange(n) / RATE
    sound = 3000 * np.sin(2 * np.pi * (200 + 3000 * t) * t) + 200 * rng.normal(size=n)
    return sound.astype("<i2")


def sphere(x, *, rate=RATE, channels=1, count=None):
    """A file as the LDC ships TIMIT: a header of 1024 bytes, then samples."""
    fields = [
        "database_id -s5 TIMIT",
        "database_version -s3 1.0",
        "utterance_id -s8 cjf0_sa1",
        f"channel_count -i {channels}",
        f"sample_count -i {len(x) // channels if count is None else count}",
        f"sample_rate -i {rate}",
        f"sample_min -i {int(min(x, default=0))}",
        f"sample_max -i {int(max(x, default=0))}",
        "sample_n_bytes -i 2",
        "sample_byte_format -s2 01",
        "sample_sig_bits -i 16",
        "end_head\n",
    ]
    header = "NIST_1A\n   1024\n" + "\n".join(fields)
    return header.encode().ljust(1024) + x.tobytes()


def riff(x, *, rate=RATE, channels=1):
    """A WAV file by Python's own writer."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(x.tobytes())
    return buffer.getvalue()


def flac(x, *, rate=RATE):
    buffer = io.BytesIO()
    soundfile.write(buffer, x, rate, format="FLAC", subtype="PCM_16")
    return buffer.getvalue()


@pytest.mark.parametrize("pack", [sphere, riff, flac])
def test_samples_come_back_as_they_were(pack):
    x = samples()
    assert np.array_equal(read_audio(pack(x), "x", rate=RATE), x.astype(float))


def test_sphere_with_the_other_byte_order():
    x = samples()
    swapped = sphere(x).replace(b"format -s2 01", b"format -s2 10")[:1024] + x.byteswap().tobytes()
    assert np.array_equal(read_audio(swapped, "x", rate=RATE), x.astype(float))


BAD = {
    "empty.wav": (b"", "is empty"),
    "noise.wav": (b"this is no sound file at all" * 9, "is not a readable sound file"),
    "header.wav": (riff(samples())[:30], "cut short|not a readable"),
    "cut.wav": (riff(samples())[:-100], "is cut short: its header promises 100 bytes more"),
    "cut_sphere.wav": (sphere(samples())[:-7], "is cut short: its header promises 7 bytes more"),
    "cut.flac": (flac(samples())[:-900], "not a readable sound file|has no samples"),
    "stereo.wav": (riff(samples(), channels=2), "has 2 channels; expected 1"),
    "stereo_sphere.wav": (sphere(samples(), channels=2), "has 2 channels; expected 1"),
    "rate.wav": (riff(samples(), rate=8000), "has 8000 samples a second; expected 16000"),
    "none.wav": (riff(samples(0)), "has no samples"),
    "none_sphere.wav": (sphere(samples(0)), "has no samples"),
    "short.wav": (riff(samples(500)), "has 1 frames; expected at least 11"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused_or_skipped_by_name(name, tmp_path):
    contents, message = BAD[name]
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "good.wav").write_bytes(riff(samples()))
    (tmp_path / "one" / name).write_bytes(contents)
    utterances = find_utterances(tmp_path)
    banks = FilterBanks()
    with pytest.raises(DataError, match=f"1 of 2 sound files are bad. .*{name} .*({message})"):
        read_frames(utterances, banks, min_frames=11)
    frames = read_frames(utterances, banks, on_bad_file="skip", min_frames=11)
    assert [u.sentence for u in frames.utterances] == ["good"]
    assert list(frames.skipped) == [str(tmp_path / "one" / name)]
    assert len(frames.values) == frames.lengths.sum() == 23


def test_when_all_files_are_bad(tmp_path):
    (tmp_path / "a.wav").write_bytes(b"")
    with pytest.raises(DataError, match="None of 1 sound files could be used"):
        read_frames(find_utterances(tmp_path), FilterBanks(), on_bad_file="skip")
    with pytest.raises(ValueError, match="on_bad_file must be 'refuse' or 'skip'; got 'ignore'"):
        read_frames([], FilterBanks(), on_bad_file="ignore")


def second_computation(x, n_filters=20):
    """Filter banks another way: scipy.signal's transform, and triangles drawn by np.interp."""
    x = x.astype(float)
    window = scipy.signal.get_window("hamming", 400, fftbins=False)
    starts = range(0, len(x) - 399, 160)
    tops = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + 8000 / 700), 22) / 2595) - 1)
    rows = []
    for start in starts:
        frame = x[start : start + 400]
        emphasised = scipy.signal.lfilter([1, -0.97], [1], frame, zi=[-0.97 * frame[0]])[0]
        frequencies, power = scipy.signal.periodogram(
            emphasised * window,
            fs=RATE,
            nfft=512,
            window="boxcar",
            detrend=False,
            scaling="density",
        )
        power = power * RATE * 400  # from a density to |X|^2
        power[1:-1] /= 2  # which SciPy doubles, for the negative frequencies
        mels = 2595 * np.log10(1 + frequencies / 700)
        corners = 2595 * np.log10(1 + tops / 700)
        filtered = [
            np.dot(power, np.interp(mels, corners[i : i + 3], [0, 1, 0], left=0, right=0))
            for i in range(n_filters)
        ]
        rows.append([np.dot(frame, frame), *filtered])
    return np.log(rows)


def test_filter_banks_agree_with_a_second_computation(seed):
    x = samples(3000, seed)
    frames = FilterBanks()(x.astype(float))
    assert frames.shape == (17, 21)
    assert frames.dtype == np.float32
    assert np.allclose(frames, second_computation(x), rtol=1e-5)


def test_a_tone_is_loudest_in_the_filter_that_stands_on_it():
    banks = FilterBanks()
    edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + 8000 / 700), 22) / 2595) - 1)
    for i in (3, 10, 17):
        tone = 5000 * np.sin(2 * np.pi * edges[i + 1] * np.arange(4000) / RATE)
        assert (banks(tone)[:, 1:].argmax(1) == i).all()


def test_silence_is_at_the_floor_and_short_sounds_have_no_frames():
    assert (FilterBanks()(np.zeros(1000)) == 0).all()
    assert FilterBanks()(np.zeros(399)).shape == (0, 21)
    assert FilterBanks()(np.zeros(400)).shape == (1, 21)


OTHERS = ("mxyz0", "fxyz0")
TRAINING = ("fcjf0", "mdac0", "mkls1")


@pytest.fixture(params=["upper", "lower"])
def timit(request, tmp_path):
    """A small tree in TIMIT's own layout, names in either case."""
    case = str.upper if request.param == "upper" else str.lower
    speakers = [("test", s) for s in sorted(CORE_TEST_SPEAKERS) + list(OTHERS)]
    speakers += [("train", s) for s in TRAINING]
    for i, (part, speaker) in enumerate(speakers):
        folder = tmp_path / case("timit") / case(part) / case(f"dr{i % 8 + 1}") / case(speaker)
        folder.mkdir(parents=True)
        for j, sentence in enumerate(("sa1", "sa2", "si648", "sx127")):
            contents = (sphere if j % 2 else riff)(samples(2200 + 100 * j, i))
            (folder / case(f"{sentence}.wav")).write_bytes(contents)
            (folder / case(f"{sentence}.phn")).write_text("0 100 h#\n")
        # Some copies hold each file a second time, with another header.
        (folder / case("sx127.wav.wav")).write_bytes(riff(samples(2500, i)))
    return tmp_path


def test_timit_as_it_is_shipped(timit):
    utterances = find_utterances(timit)
    split = split_timit(utterances)
    assert {u.speaker for u in split.train} == set(TRAINING)
    assert {u.speaker for u in split.validation} == set(OTHERS)
    assert {u.speaker for u in split.test} == CORE_TEST_SPEAKERS
    assert len(CORE_TEST_SPEAKERS) == 24
    assert {u.sentence for u in utterances} == {"si648", "sx127"}
    assert len(split.test) == 48
    with_sa = find_utterances(timit, sa=True)
    assert len(with_sa) == 2 * len(utterances)
    frames = read_frames(split.train, FilterBanks(), min_frames=11)
    assert len(frames.utterances) == 6
    assert not frames.skipped


def test_timit_that_is_not_whole(timit):
    utterances = find_utterances(timit)
    with pytest.raises(DataError, match="No utterances of TIMIT's train speakers"):
        split_timit([u for u in utterances if u.part == "test"])
    with pytest.raises(DataError, match="1 of the 24 core test speakers are missing: fmld0"):
        split_timit([u for u in utterances if u.speaker != "fmld0"])


@pytest.mark.parametrize("by", ["speaker", "file"])
def test_any_folder_is_split_without_overlap(by, tmp_path, seed):
    for speaker in range(6):
        (tmp_path / f"s{speaker}").mkdir()
        for file in range(2):
            (tmp_path / f"s{speaker}" / f"{file}.FLAC").write_bytes(flac(samples()))
    utterances = find_utterances(tmp_path)
    split = split_speech(utterances, n_validation=1, n_test=2, by=by, seed=seed)
    parts = (split.train, split.validation, split.test)
    per = 2 if by == "speaker" else 1
    assert [len(p) for p in parts] == [12 - 3 * per, per, 2 * per]
    keys = [{u.speaker if by == "speaker" else u.path for u in p} for p in parts]
    assert sum(len(k) for k in keys) == len(set.union(*keys))
    with pytest.raises(ValueError, match=f"leave some of the .* {by}s to train"):
        split_speech(utterances, n_validation=6, n_test=6, by=by)


def test_folders_without_speech(tmp_path):
    with pytest.raises(DataError, match="No WAV, FLAC or SPHERE files below"):
        find_utterances(tmp_path)
    with pytest.raises(DataError, match="does not exist"):
        find_utterances(tmp_path / "none")


@pytest.fixture
def frames(tmp_path):
    (tmp_path / "a").mkdir()
    for i, n in enumerate((2000, 2500, 3300)):
        (tmp_path / "a" / f"{i}.wav").write_bytes(riff(samples(n, i)))
    return read_frames(find_utterances(tmp_path), FilterBanks(), min_frames=11)


def test_windows_are_eleven_frames_of_one_utterance(frames):
    mean, scale = frame_statistics(frames)
    source = WindowSource(frames, mean, scale)
    assert source.n_dimensions == 231
    standard = (frames.values - mean) / scale
    expected, owners = [], []
    at = 0
    for u, length in enumerate(frames.lengths):
        for i in range(length - 10):
            expected.append(standard[at + i : at + i + 11].ravel())
            owners.append(u)
        at += length
    assert len(source) == len(expected)
    assert np.allclose(source[:], np.stack(expected), atol=1e-5)
    assert source.utterance_of_window.tolist() == owners
    drawn = source.draw(500, Generator().manual_seed(0))
    seen = {bytes(row.numpy()) for row in drawn}
    assert seen == {bytes(row.numpy()) for row in source[:]}  # each window, and nothing else


def test_windows_need_long_enough_utterances(frames):
    with pytest.raises(ValueError, match="Expected utterances of at least 30 frames"):
        WindowSource(frames, *frame_statistics(frames), n_frames=30)


def test_windows_of_a_split_are_standardised_by_its_training_frames(timit):
    split = split_timit(find_utterances(timit))
    split.test[0].path.write_bytes(b"")
    with pytest.raises(DataError, match="is empty"):
        load_windows(split)
    windows = load_windows(split, on_bad_file="skip")
    assert list(windows.skipped) == [str(split.test[0].path)]
    frames = read_frames(split.train, FilterBanks()).values.astype(float)
    for source, part in ((windows.train, split.train), (windows.validation, split.validation)):
        first = FilterBanks()(read_audio(part[0].path.read_bytes(), "x", rate=RATE))
        expected = ((first - frames.mean(0)) / frames.std(0))[:11].ravel()
        assert np.allclose(source[:1], expected, atol=1e-4)


@pytest.mark.data
def test_the_sample_of_timit(data_folder):
    """16 speakers; by the data's description 7,841,548 samples in all, sa sentences included."""
    utterances = find_utterances(data_folder / "timit_sample", sa=True)
    assert len(utterances) == 160
    assert len({u.speaker for u in utterances}) == 16
    assert "fvmh0" in {u.speaker for u in utterances}
    total = sum(len(read_audio(u.path.read_bytes(), str(u.path), rate=RATE)) for u in utterances)
    assert total == 7_841_548
    split = split_speech(find_utterances(data_folder / "timit_sample"), n_validation=2, n_test=3)
    assert [len(p) for p in (split.train, split.validation, split.test)] == [88, 16, 24]
    frames = read_frames(split.test, FilterBanks(), min_frames=11)
    assert np.isfinite(frames.values).all()
    assert not frames.skipped
