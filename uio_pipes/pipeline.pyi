"""Made by scripts/stubs.py from pipeline.py and the stages; not to be edited."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from torchdata.nodes import BaseNode

from uio_pipes.base.checks import nearest
from uio_pipes.base.hints import answer
from uio_pipes.core.graph import Graph
from uio_pipes.core.realize import Length, Lengths, Pair
from uio_pipes.core.sample import Sample
from uio_pipes.formats.tables.description import Table
from uio_pipes.inspect.peek import Peek
from uio_pipes.integrations.torch_loaders import PipelineDataPipe, PipelineDataset
from uio_pipes.stages.batches.pad import Collate
from uio_pipes.stages.utterances.map import MappedLength
from uio_pipes.tokenizers import Tokenizer

__all__ = ["Pipeline"]

class Pipeline(Graph):
    """An immutable, picklable description of a graph: a source and the stages chained on it.

    Begin with ``uio.from_shard_list(…)`` or another ``uio.from_…``, add stages by the methods named after them, and
    run it by ``uio.Loader(pipeline)``. Describing opens no file. ``print(pipeline)`` draws the graph and says what
    happens where.

    Args:
        stages: the stages in their order; the methods make them.
    """

    def _begun(self, start: str, resampled: Any = False, tolerance: Any = None, longer: Any = "fail") -> Pipeline:
        """Return it as the function ``start`` was asked for it, by :class:`AccessOptions`. Raises: PipelineError."""
        ...

    def sharding_filter(self) -> Pipeline:
        """Give each lane its share of the data: item ``p`` of the epoch goes to lane ``p % lanes``.

        Put it directly after ``list_files`` (shards are dealt out), after a ``mix``, or anywhere before the batches. A
        graph without it can run in one lane only, that is on one rank with at most one worker. With as many lanes as
        there are workers in all, which is the default, the shares are WeNet's
        ``data[rank::world_size][worker::num_workers]``.

        Raises:
            PipelineError: there is one already; a second one would keep a share of a share and lose the rest.
        """
        ...

    def open_files(self, interleave: int = 1) -> Pipeline:
        """Treat each line of the list as a file: a path, or any URL that fsspec knows (http(s), s3, oss, gs, …).

        A file is opened when the next stage reads it, as ``list_files`` says (:class:`AccessOptions`).

        Args:
            interleave: shards that each lane reads at once, an utterance of each in turn. It mixes what is alike within a
                shard (a speaker, a book), and lets a slow shard keep up with its share. Default: 1.
        """
        ...

    def load_from_tar(
        self,
        grouping: Literal["wenet", "webdataset"] = "wenet",
        text: str | None = "txt",
        verify: Literal["crc"] | None = None,
        max_member: int = 1073741824,
        fields: Mapping[str, str] | None = None,
    ) -> Pipeline:
        """Read the utterances of tar shards: consecutive members with the same key are one utterance.

        Shards may be .tar, .tar.gz, .tar.zst, .tar.bz2 or .tar.xz. An utterance has the fields ``key``, ``txt``,
        ``wav`` (the bytes of the audio file, whatever its format) or ``feat`` ((T, F), from ``KEY.npy``). Its other
        members are fields named by their suffix: ``speaker``, ``spk``, ``gender``, ``age``, ``lang``, ``language``,
        ``dialect``, ``accent``, ``task``, ``domain``, ``emotion``, ``text`` and the like as text, others as bytes. Where
        the list has a manifest, a shard with another number of utterances or bytes than it says is reported.

        Args:
            grouping: where a member's name is cut into key and suffix: "wenet" cuts at the last dot of the whole path,
                "webdataset" at the first dot of the base name. Default: "wenet".
            text: suffix of the member that holds the transcript, or "json:NAME" if it is the field NAME of the member
                ``KEY.json``; None if utterances need none: ``txt`` is then there where a shard has it. Default: "txt".
            verify: "crc" compares each member with its CRC32 in the shard's index (``uio index``). Default: None, trusted.
            max_member: bytes; a larger member is skipped and counted as a failure. Default: 1,073,741,824 (1 GiB).
            fields: our names of fields with their members' suffixes, or with ``SUFFIX:NAME`` for a field of a member's
                JSON, as in ``{"txt": "trans", "speaker": "json:speaker"}``. Default: None, ours.
        """
        ...

    def load_from_raw(self, fields: Mapping[str, str] | None = None, text: str | None = "txt") -> Pipeline:
        """Read the utterances of a raw list: one JSON object per line, ``{"key": …, "wav": path or URL, "txt": …}``.

        A line may also have ``start`` and ``end`` (seconds: the utterance is that segment of the recording),
        ``duration`` (seconds: the audio's header is then not read to plan), ``speaker``, ``feat`` (path of a .npy array
        (T, F), instead of ``wav``), and any other name: all are kept as fields.

        Args:
            fields: our names of fields whose names in the lines are others, as in ``{"wav": "audio", "txt": "text"}``.
                Default: None, all have ours.
            text: name that holds the transcript; None if utterances need none: ``txt`` is then there where a line has it.
                Default: "txt".
        """
        ...

    def load_records(self) -> Pipeline:
        """Read the utterances of a source with random access: indexed tars, TouchDatasets, Kaldi tables, manifests.

        ``uio.from_tar_index``, ``uio.from_indexed``, ``uio.from_kaldi``, ``uio.from_nemo`` and others end with this stage.
        Audio is read when the batch is made.
        """
        ...

    def balance(self, by: str, power: float = 0.5) -> Pipeline:
        """Let rare languages, speakers or data sets come more often: values with n utterances get a share of n ** power.

        An epoch stays as long as it was, and is shuffled. All utterances of a value come equally often: the next epoch goes
        on where this one stopped among them, and those that come again in an epoch are augmented anew. Put it directly
        after the source, which must know all its utterances before: a table, a raw list, or an index of shards. Their
        values are read when a loader starts. An utterance that lacks the field is an error.

        Args:
            by: the field, such as "lang", "speaker" or "dataset".
            power: 1 changes nothing, 0 gives each value the same share; between them, small ones come more often than they
                would by their size. Default: 0.5.

        Raises:
            ListError: when the loader starts, if an utterance has no such field.
        """
        ...

    def repeat(self, times: int | None = None) -> Pipeline:
        """Repeat everything before this stage, a number of times or endlessly (WeNet's ``cycle``).

        Each round is shuffled and augmented anew. Directly after ``list_files`` the whole list is repeated, after
        ``sharding_filter`` each lane's share. An endless stream is cut into epochs by ``Loader(steps_per_epoch=…)``. It
        ends all the same after a whole round of which later stages leave nothing.

        Args:
            times: number of rounds, at least 1; None or -1 repeats for ever. Default: None.
        """
        ...

    def take(self, number: int) -> Pipeline:
        """Keep only the first items.

        Before ``sharding_filter`` that is the first items of the epoch, after it the first items of each lane.

        Args:
            number: how many to keep, of whatever passes this stage: list items, utterances or batches. At least 1.
        """
        ...

    def skip(self, number: int) -> Pipeline:
        """Leave out the first items.

        Before ``sharding_filter`` that is the first items of the epoch, after it the first items of each lane. To skip
        some batches once, after a loss spike, call :meth:`Loader.skip` instead.

        Args:
            number: how many to leave out, of whatever passes this stage: list items, utterances or batches. 0 or more.
        """
        ...

    def keep(self, probabilities: str | os.PathLike[str] | Mapping[str, float], otherwise: float = 1.0) -> Pipeline:
        """Keep each utterance with a probability of its own, such as one that follows from its loss in an earlier run.

        A draw for each utterance decides, in each epoch anew. Those left out are counted as ``keep``; nothing of them is
        decoded.

        Args:
            probabilities: a dict of probabilities, from 0 to 1, by key; or the path of a file with a line ``KEY
                PROBABILITY`` for each utterance, which is read when a loader starts.
            otherwise: the probability of utterances that are not in the table. Default: 1.0.

        Raises:
            ListError: when the loader starts, if the file cannot be read.
        """
        ...

    def exclude(self, path: str | os.PathLike[str]) -> Pipeline:
        """Leave out the utterances named in a quarantine file, and count them as ``excluded``.

        ``uio.Failures(quarantine=…)`` and ``uio verify --quarantine`` write such a file. Utterances are recognized by their
        shard (or list) and key, and are left out before anything of them is decoded. One that the file names and that
        fails while it is loaded is counted as ``excluded`` too, not as a failure. Put this stage directly after the one
        that loads utterances.

        Args:
            path: the quarantine file. It must be unchanged when a state is loaded.
        """
        ...

    def overlay(
        self,
        path: str | os.PathLike[str],
        missing: Literal["keep", "drop", "error"] = "keep",
        storage_options: Mapping[str, Any] | None = None,
    ) -> Pipeline:
        """Replace fields of utterances, by key, with those of a file: new transcripts, speakers or segments.

        It works on every source, and reads an entry when its utterance passes; 16 bytes per key are kept in memory. A
        compressed or remote file is first copied to a temporary file (in ``TMPDIR``), once per process. If ``wav`` is
        replaced, the ``start``, ``end``, ``duration`` and ``timeline`` of the old one are removed. An entry that cannot be
        read is counted with its utterance as the failure ``bad_overlay``. Put this stage directly after the one that loads
        utterances; stages of streams whose fields it leaves alone may come first. A state remembers what the file held.

        Args:
            path: local path or URL of a JSONL file with one ``{"key": …, "txt": …, …}`` per line, plain or ``.gz``; or
                the prefix of a TouchDataset's metadata (``FOLDER/metainfo_v2``), of which the fields that describe its
                own audio (``wav``, ``sample_rate``, ``start``, …) are ignored.
            missing: what to do with an utterance whose key is not in the file: "keep" it as it is, "drop" it (counted
                as ``not_in_overlay``), or stop the run with an "error". Default: "keep".
            storage_options: how the file is reached, as :class:`AccessOptions` says. Default: None.
        """
        ...

    def tag(self, fields: Mapping[str, Any]) -> Pipeline:
        """Give every utterance the same fields, such as the language and the task of one source of a mix.

        ``lang`` and ``task`` become the lists ``langs`` and ``tasks`` of a padded batch.

        Args:
            fields: values by name: strings, numbers, True or False. They replace those of the data.
        """
        ...

    def timeline(
        self,
        source: str | os.PathLike[str] | Table | Sequence[str | os.PathLike[str]] | None = None,
        field: str | None = None,
        uem: str | os.PathLike[str] | None = None,
        words: bool = True,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Pipeline:
        """Give each utterance a ``timeline``: its events, with start, end, text, speaker and channel, on the audio's clock.

        The events come from one of three places:

        - ``timeline("all.rttm")``: tables of many recordings, such as RTTM, CTM and STM. An utterance finds its rows by the
          field ``recording``, its key, or the name of its audio file. One without rows has no events, as nobody speaks
          there; if no ``uem`` has it either, it is noted as ``not_annotated``.
        - ``timeline("{stem}.json")``: a file for each recording, beside its audio. Braces have expressions of its fields,
          as in :func:`from_table`, and ``{stem}`` is the name of the audio file without its suffix.
        - ``timeline(field="supervisions")``: what the utterance has already: a list of segments or words, a JSON object
          that has such a list, the path of a file, or its content.

        Forms are known by the suffix: rttm, ctm, stm, TextGrid, srt, vtt, and JSON of moshi-finetune, Whisper, WhisperX,
        stable-ts, MFA and Lhotse. What is not there is the failure ``missing_timeline``, what cannot be read
        ``bad_timeline``. An event that cannot be used is left out and counted: ``untimed_event``, ``negative_event``,
        ``reversed_event``, ``late_event``, ``absent_channel``, ``bad_event``; ``unsorted_event`` only counts.

        Stages that cut, join or change audio move the timeline along. Put this stage before ``decode_audio``.

        Args:
            source: table(s) by path, URL or glob, a :class:`uio.Table`, or a pattern, relative to the folder of the audio.
                Default: None, which needs ``field``.
            field: name of the field that has the events. Default: None.
            uem: NIST's UEM, the table of the parts that are annotated. Default: None, all is annotated.
            words: whether a segment that lists its words gives these, in place of itself. Default: True.
            storage_options: how files are reached, as :class:`AccessOptions` says. Default: None.

        Raises:
            ListError: when a loader starts, if a table cannot be read.
        """
        ...

    def segments(
        self,
        pick: str = "all",
        field: str = "info.segments",
        of: str = "segments",
        merge_seconds: float | None = None,
        random_first: bool = False,
        separator: str | None = None,
        cut_seconds: tuple[float, float] | float | None = None,
        texts: Sequence[str] | None = ("txt",),
    ) -> Pipeline:
        """Cut utterances out of long recordings, at the times of their segments or at random.

        The result has the fields of the recording except for its list of segments, then ``start``, ``end``, ``txt`` and
        the other fields of the segment (of joined segments: those that agree), and as ``key`` the segment's own, or
        ``KEY-START-END`` in milliseconds. Of a supervision of Lhotse's, ``id`` becomes ``key`` and ``text`` becomes
        ``txt``; ``speaker``, ``language`` and custom fields are fields; if it overlaps the edge of the cut, the audio is
        what lies inside. Custom arrays and recordings of Lhotse's cuts are cut along. The audio is that of the segment's
        ``channel``, if it is a number or a list of numbers, counted from 0. A segment that cannot be used is counted
        (``bad_segment``, ``missing_text``, ``no_such_channel``); the others stay. Times may be numbers or text. Of
        TouchDatasets and 16-bit PCM wav only the bytes of the segment are read. Put this stage before ``decode_audio`` and
        before everything that works on text.

        Args:
            pick: "all" gives every segment of a recording in turn, "random" gives one of them. Default: "all".
            field: name of the field that lists the segments as ``{"start", "end", "txt", …}``, in seconds from the
                beginning of the recording, or as Lhotse's supervisions (``"supervisions"``: ``start``, ``duration``,
                ``text``); dots lead into nested fields. Default: "info.segments".
            of: what to cut: the "segments", or the whole "recording", which needs ``cut_seconds``. Default: "segments".
            merge_seconds: seconds; neighbouring segments are joined as long as the result, pauses included, is not
                longer. Segments of different channels are not joined. Default: None, segments are not joined.
            random_first: begin to join at a random segment, so that other segments are joined in each epoch; otherwise
                at the first. Needs ``merge_seconds``. Default: False.
            separator: text between joined transcripts. Default: None, which means a blank, except between scripts that
                are written without blanks (Chinese, Japanese, Thai, …).
            cut_seconds: (minimum, maximum) in seconds; each segment, run of joined segments or recording is cut into
                pieces of random lengths between the two, or with ``pick="random"`` gives one such piece from anywhere
                in it. What is shorter than the minimum is left out and counted as ``too_short``. A piece that is not
                the whole has the transcript "", because it is not known what is said in it (``tokenize`` and ``filter``
                would leave it out as ``too_few_tokens``). One number instead: pieces of that many seconds, one after the
                other, of which the last is what is left, however short. Default: None, nothing is cut further.
            texts: names of the segment's transcripts, such as ("txt", "whisper"), of which it must have at least one;
                each that all joined segments have is joined by itself. ``choose_text`` chooses one of them afterwards.
                None if segments need none, as for pre-training: ``txt`` is then there where a segment has it. Default:
                ("txt",).
        """
        ...

    def decode_audio(
        self, channel: int | str | Sequence[int] | None = 0, longest: float | None = 3600.0, of: str = ""
    ) -> Pipeline:
        """Decode ``wav`` to float32 of shape (1, S) in [-1, 1], and set ``sample_rate`` in Hz.

        Formats: wav, flac, ogg, opus and mp3; with ``pip install 'uio_pipes[codecs]'`` also m4a, aac and wma. They are
        recognized by their first bytes. If the utterance has ``start`` and ``end`` (seconds), that segment is cut out.
        The planned length comes from the header, so that nothing is decoded before the batch is made; mp3, m4a, aac and
        wma have no reliable length there and are decoded when it is first needed. Samples that are arrays or tensors
        already, of shape (S,) or (C, S), are only converted; integers are taken as PCM of their width.

        Failures: ``bad_audio``, ``truncated_audio``, ``empty_audio``, ``nan_audio``, ``bad_segment``, ``no_such_channel``,
        ``missing_codec``, ``too_long_to_decode``.

        Args:
            channel: number of the channel to keep, counted from 0, or a list of them in rising order, as ``[0, 1]`` for
                stereo, (C, S); or the name of the field that has this number or list of each utterance; None keeps all
                channels, however many there are. Tables have chosen the ``channel`` of a row already. Default: 0.
            longest: seconds that are decoded for one utterance, which takes 230 MB an hour at 16 kHz; a longer one is the
                failure ``too_long_to_decode``. Segments of longer recordings are no matter. None: no bound. Default:
                3600.0.
            of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
        """
        ...

    def decode_video(
        self, fps: float | None = None, size: Sequence[int] | None = None, field: str = "video"
    ) -> Pipeline:
        """Decode a video to RGB frames, uint8 of shape (T, C, H, W), when the batch is made.

        The video is the bytes of a file (mp4, mkv, webm, …: what FFmpeg reads) in a TouchDataset's record, a shard's
        member, or a path or URL. If the utterance has ``start`` and ``end`` (seconds), only the frames of that span are
        decoded, from the last key frame before it on, and only the bytes that this takes are read. Lengths are planned by
        the audio alone. ``pad`` delivers the frames if it is told to: ``pad(keep=["video"])``. Needs
        ``pip install 'uio_pipes[video]'``.

        Failures: ``missing_video``, ``bad_video``, ``truncated_video``, ``bad_segment``, ``missing_codec``.

        Args:
            fps: frames per second; each is the one that is shown at its time, so that a span has as many as its length
                says. Default: None, all frames that begin within the span.
            size: (height, width) in pixels, to which frames are scaled. Default: None, their own size.
            field: name of the field with the video, in whose place the frames come. Default: "video".
        """
        ...

    def resample(self, resample_rate: int = 16000, of: str = "") -> Pipeline:
        """Resample ``wav`` by windowed sinc interpolation, equal to torchaudio's ``Resample`` with its defaults.

        Args:
            resample_rate: the new sample rate in Hz. Default: 16,000.
            of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
        """
        ...

    def speed_perturb(self, speeds: Sequence[float] = (0.9, 1.0, 1.1), of: str = "") -> Pipeline:
        """Play each utterance faster or slower, which also changes its pitch (Ko et al. 2015; sox's ``speed``).

        The times of a timeline are divided by the factor.

        Args:
            speeds: factors, above 0, of which one is drawn for each utterance with equal chances; 0.9 makes it longer,
                1.1 shorter. Default: (0.9, 1.0, 1.1).
            of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
        """
        ...

    def mono(self, channel: int | None = None, of: str = "") -> Pipeline:
        """Reduce ``wav`` from (C, S) to one channel, (1, S).

        This is for recordings decoded by ``decode_audio(channel=None)``. To keep one channel from the start,
        ``decode_audio(channel=0)``, which is its default, costs less. A channel that does not exist is the failure
        ``no_such_channel``.

        Args:
            channel: number of the channel to keep, counted from 0; None takes the average of all. Default: None.
            of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
        """
        ...

    def volume_perturb(self, low: float = 0.125, high: float = 2.0, of: str = "") -> Pipeline:
        """Multiply ``wav`` by a random factor, drawn evenly between two bounds.

        The defaults, 0.125 to 2 or -18 to +6 dB, are those of Kaldi's ``perturb_data_dir_volume.sh``. Nothing is
        clipped: samples may leave [-1, 1].

        Args:
            low: smallest factor (linear, not dB), above 0. Default: 0.125.
            high: largest factor, not below ``low``. Default: 2.0.
            of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
        """
        ...

    def add_noise(
        self,
        noises: str | Sequence[str],
        snr: Sequence[float] = (5.0, 20.0),
        probability: float = 1.0,
        cache_mb: int = 256,
        clips: Sequence[int] = (1, 1),
        part: Sequence[float] | None = None,
        of: str = "",
    ) -> Pipeline:
        """Add noise from other recordings to ``wav``, at a random signal-to-noise ratio.

        The noise, the part of it that is used, and the ratio belong to the utterance: they are the same on 1 worker and
        on 64. From a longer noise a random segment is taken (if it is longer than 30 s and its header gives the length,
        only that segment is decoded); a shorter one is repeated, beginning at a random place. Noise is resampled to the
        utterance's rate, and its first channel is added to every channel of the utterance. Nothing is added to silence,
        silent noise adds nothing, and the result is not clipped.

        With ``part``, the noise is under a part of the utterance only, at a random place. With recordings of speech as
        noises that is overlapped speech (Chen et al., "WavLM", 2022). With ``clips``, several noises are added. With
        recordings of speech that is babble.

        A noise that cannot be read makes its utterance the failure ``bad_noise``, and the message names the noise.
        Remote files are read whole. Remote or compressed shards are kept as long as they take up to half the cache; a
        larger one is read again for each of its members.

        Args:
            noises: list file(s) whose lines are paths or URLs of audio files, ``key path`` pairs (Kaldi), JSON objects
                with ``wav`` (and ``start``, ``end`` in seconds), or tar shards of audio files; or the audio files and
                shards themselves, by name, glob or braces. Each line has equal chances, and so has each audio file of
                its shard.
            snr: (lowest, highest) signal-to-noise ratio in dB, of the powers (mean squares) over the whole utterance;
                one is drawn evenly from between. Both within ±100. Default: (5.0, 20.0).
            probability: how likely an utterance gets noise, from 0 to 1. Default: 1.0.
            cache_mb: MiB of decoded noise that each process keeps in memory, for all its lanes. Default: 256.
            clips: (fewest, most) noises that an utterance gets, if it gets any; each number in between has equal chances.
                Each noise has its own part, ratio and place. Default: (1, 1).
            part: (smallest, largest) share of the utterance's length that has the noise, within 0 and 1; one is drawn
                evenly from between. Its place is random. A shorter noise is not repeated. The ratio is that of the whole
                utterance to this part of the noise. None: the noise is under the whole utterance. Default: None.
            of: the audio stream to work on, a field of the utterance. Default: "", the usual one.

        Raises:
            ListError: when the loader starts, if the list is missing or cannot be used.
        """
        ...

    def reverberate(
        self,
        impulse_responses: str | Sequence[str] | None = None,
        probability: float = 1.0,
        cache_mb: int = 256,
        rt60: Sequence[float] | None = None,
        of: str = "",
    ) -> Pipeline:
        """Convolve ``wav`` with a room impulse response, keeping length, timing and power.

        The responses are recordings, ``reverberate("rooms.list")``, or are computed for a room of its own for each
        utterance, ``reverberate(rt60=(0.1, 0.8))``. The direct sound (a recorded response's highest peak) is put at time
        0, and the result is scaled to the power of the input, like Kaldi's ``wav-reverberate --shift-output
        --normalize-output``. Which response is used belongs to the utterance: it is the same on 1 worker and on 64.

        A recorded response is resampled to the utterance's rate, and its first channel is used. One that cannot be read,
        or is silent, makes its utterance the failure ``bad_impulse_response``, and the message names it.

        A computed one is that of a box whose walls reflect alike, 3 to 10 m long and wide and 2.5 to 4 m high, with source
        and microphone anywhere but in the outer tenths of each: image sources for the first 50 ms, decaying noise after
        (Lehmann and Johansson, "Diffuse reverberation model for efficient image-source simulation of room impulse
        responses", 2010).

        Args:
            impulse_responses: list file(s), audio files or tar shards of them, as for ``add_noise``. Default: None.
            probability: how likely an utterance is reverberated, from 0 to 1. Default: 1.0.
            cache_mb: MiB of decoded responses that each process keeps in memory, for all its lanes. Default: 256.
            rt60: (lowest, highest) reverberation time of computed rooms, the seconds in which sound decays by 60 dB, within
                0.05 and 10; one is drawn evenly from between. In place of ``impulse_responses``. Default: None.
            of: the audio stream to work on, a field of the utterance. Default: "", the usual one.

        Raises:
            PipelineError: neither ``impulse_responses`` nor ``rt60`` is given, or both, or an argument breaks a rule.
            ListError: when the loader starts, if the list is missing or cannot be used.
        """
        ...

    def lowpass(self, cutoff: Sequence[float] = (3500.0, 8000.0), probability: float = 1.0, of: str = "") -> Pipeline:
        """Remove frequencies above a random cutoff from ``wav``, like narrow channels and cheap microphones.

        The filter is an eighth-order Butterworth low-pass: -3 dB at the cutoff, 48 dB per octave above it. A cutoff at or
        above half the sample rate changes nothing. Length and rate stay.

        Args:
            cutoff: (lowest, highest) cutoff in Hz; one is drawn evenly from between. Default: (3500.0, 8000.0).
            probability: how likely an utterance is filtered, from 0 to 1. Default: 1.0.
            of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
        """
        ...

    def codec(
        self,
        codecs: Sequence[str] = ("opus", "mp3", "vorbis", "gsm", "mulaw"),
        compression_level: Sequence[float] = (0.8, 0.99),
        probability: float = 1.0,
        of: str = "",
    ) -> Pipeline:
        """Encode ``wav`` with a random lossy codec and decode it again, in memory. Length, timing and rate stay.

        "opus", "mp3" and "vorbis" work at the utterance's rate, or at the next higher one that they know. "gsm" (GSM
        06.10 full rate, 13 kbit/s), "mulaw" and "alaw" (ITU-T G.711, 64 kbit/s) are those of telephones: they work at
        8 kHz, so that nothing above 4 kHz remains. Delays of encoders are taken out. Each channel is coded by itself.
        Samples above full scale are scaled down before, and up again after. libsndfile does the work. Samples that are
        not finite numbers make the utterance the failure ``bad_audio``.

        Args:
            codecs: names of codecs, of which one is drawn for each utterance with equal chances; a name that is given
                twice is twice as likely. Default: ("opus", "mp3", "vorbis", "gsm", "mulaw").
            compression_level: (lowest, highest) compression of "opus", "mp3" and "vorbis", from 0 (best sound) to 1 (fewest
                bits); one is drawn evenly from between. At 16 kHz, 0.8 to 0.99 is about 59 to 10 kbit/s for Opus, 31
                to 23 for MP3 and 34 to 33 for Vorbis. Default: (0.8, 0.99).
            probability: how likely an utterance is coded, from 0 to 1. Default: 1.0.
            of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
        """
        ...

    def clip(
        self, gain_db: Sequence[float] = (0.0, 20.0), hard: float = 0.5, probability: float = 1.0, of: str = ""
    ) -> Pipeline:
        """Clip ``wav`` like a recording at too high a level, and restore its level.

        The waveform is amplified until its peak is a random number of dB above full scale. Then it is clipped at full
        scale, hard (what is above is cut off) or soft (it saturates: tanh), and scaled back: samples far below the peak
        stay as they were. All channels have one peak. Length and rate stay.

        Args:
            gain_db: (lowest, highest) dB by which the peak exceeds full scale; one is drawn evenly from between. Hard
                clipping at 0 dB changes nothing. Default: (0.0, 20.0).
            hard: how likely the clipping is hard, from 0 (always soft) to 1 (always hard). Default: 0.5.
            probability: how likely an utterance is clipped, from 0 to 1. Default: 1.0.
            of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
        """
        ...

    def loudness(self, target: Sequence[float] = (-33.0, -13.0), probability: float = 1.0, of: str = "") -> Pipeline:
        """Scale ``wav`` to a random perceived loudness in LUFS (ITU-R BS.1770-4).

        The loudness is that of ``torchaudio.functional.loudness``. Utterances below 0.4 s, which is the shortest that
        can be measured, and silent ones stay as they are. Nothing is clipped: samples may leave [-1, 1]. Of more than
        five channels, the first five are measured, and all are scaled.

        Args:
            target: (lowest, highest) loudness in LUFS; one is drawn evenly from between. Both the same: every utterance
                gets this loudness. Default: (-33.0, -13.0).
            probability: how likely an utterance is scaled, from 0 to 1. Default: 1.0.
            of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
        """
        ...

    def pitch_shift(self, semitones: Sequence[float] = (-2.0, 2.0), probability: float = 1.0, of: str = "") -> Pipeline:
        """Shift the pitch of ``wav`` by a random interval. Length, timing, power and rate stay.

        A phase vocoder (windows of 32 ms) stretches the time, and resampling undoes that. Formants move with the pitch, as
        with ``speed_perturb``.

        Args:
            semitones: (lowest, highest) interval in semitones, below 0 for a lower voice; one is drawn evenly from between.
                Both within ±24. Default: (-2.0, 2.0).
            probability: how likely an utterance is shifted, from 0 to 1. Default: 1.0.
            of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
        """
        ...

    def random_crop(self, max_seconds: float | None = None, max_frames: int | None = None, of: str = "") -> Pipeline:
        """Keep a random piece of each utterance that is longer than a bound; shorter ones stay as they are.

        Every position is equally likely. A timeline is cut along: by n / rate seconds at sample n, or n times the shift of
        the features at frame n. ``txt`` and labels stay as they are and no longer match the audio, so this is for speaker,
        codec and self-supervised training. Give exactly one of the two bounds.

        Args:
            max_seconds: seconds of ``wav`` to keep; use it before features are computed. Default: None.
            max_frames: frames of ``feat`` to keep; use it after a feature stage, or for precomputed features. Default:
                None.
            of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
        """
        ...

    def concat(self, max_seconds: float | None = None, max_frames: int | None = None) -> Pipeline:
        """Join consecutive utterances, as long as the result does not exceed a bound.

        The result is one utterance: ``wav``, ``feat``, ``label`` and ``tokens`` are put one after the other, keys are
        joined by "+", transcripts by a blank (by nothing next to a script without blanks: Chinese, Japanese, Thai, …),
        and other texts and numbers (``speaker``, ``lang``) stay if all parts agree. Timelines follow one another. Put
        ``shuffle`` before it, or the same neighbours meet in every epoch; put ``tokenize`` after it if the blanks between
        words are tokens. An utterance that exceeds the bound by itself passes unchanged. Give exactly one of the bounds.

        Lengths are planned ones, and the parts are decoded when the batch is made. A part that fails then is counted
        and left out of the joined utterance; so is one whose sample rate, channels or feature bins differ from those of
        the first part (``mixed_sample_rates``, ``mixed_channels``, ``mixed_features``). Statistics count a joined
        utterance as one.

        Args:
            max_seconds: longest result in seconds of audio. Default: None.
            max_frames: longest result in planned frames (10 ms of audio if there is no feature stage before). Default:
                None.
        """
        ...

    def mixture(
        self,
        speakers: Sequence[int] = (1, 4),
        pause: float | None = None,
        overlap: Sequence[float] | None = None,
        utterances: Sequence[int] = (1, 1),
        window: int = 200,
    ) -> Pipeline:
        """Mix single utterances to overlapped speech, for diarisation, separation and recognition of several speakers.

        A mixture begins with the utterance that has waited longest, and takes those of its speaker and of other speakers
        that have waited longest. ``wav`` is the sum; ``timeline`` has an event for each part with its text and ``speaker``,
        or its own events; keys are joined by "+", and other fields are gone. Put ``shuffle`` and ``reverberate`` before it,
        noise and features after it.

        With ``pause``, each speaker speaks without regard to the others, as in the recipe of EEND (Fujita et al. 2019,
        algorithm 1). With ``overlap``, speakers take turns, each of which begins before the last one ends, as in LibriMix
        (Cosentino et al. 2020) with (1, 1), and SparseLibriMix with (0, 1). Give exactly one of the two.

        A part that fails when it is decoded is counted and left out; so is one whose sample rate or channels differ from
        those of the first (``mixed_sample_rates``, ``mixed_channels``), an utterance without ``speaker``
        (``missing_speaker``), and, where too few speakers wait, as at the end, another one (``too_few_speakers``).

        Args:
            speakers: (fewest, most) speakers of a mixture; each number in between has equal chances. Default: (1, 4).
            pause: mean seconds of the pauses before the utterances of a speaker, drawn from an exponential distribution.
                The shorter, the more overlap; EEND's is 2 to 9. Default: None.
            overlap: (lowest, highest) share of the shorter of two turns in which both speak, from 0 to 1; it is drawn
                evenly for each turn. Nobody overlaps with themselves. Default: None.
            utterances: (fewest, most) utterances of each speaker, fewer where fewer wait. Default: (1, 1).
            window: utterances that wait, among which partners are looked for. Default: 200.

        Raises:
            PipelineError: an argument breaks a rule, or there are features already.
        """
        ...

    def choose_text(self, names: Sequence[str], weights: Sequence[float] | None = None) -> Pipeline:
        """Choose ``txt`` among several transcripts of the utterance: the first that exists, or one drawn by weights.

        A transcript is there if it is text that is not empty; if all are empty, so is ``txt``. An utterance without any
        of them is the failure ``missing_text``. With ``segments``, name the transcripts there, too (``texts=``), so that
        they are joined, and put this stage after it.

        Args:
            names: names of the fields, such as ["txt", "whisper", "paraformer"]; dots lead into nested fields. Without
                weights, the first that is there is chosen.
            weights: for each name, how often it is drawn among those that are there, relative to the others, above 0.
                An utterance gets another draw in each epoch. Default: None, nothing is drawn.
        """
        ...

    def normalize_text(self, function: Callable[[str], str] | None = None, of: str = "") -> Pipeline:
        """Change ``txt`` by a function, or remove the blanks in Mandarin text.

        Args:
            function: gets the text and returns the new one. Default: None, which removes every run of blanks that has a
                Chinese character or Chinese punctuation on at least one side: ``"今天 iPhone 15 发布"`` becomes
                ``"今天iPhone 15发布"``. Blanks between words of other scripts stay. ``tokenize`` does this by itself if
                its tokenizer has no symbol for a blank.
            of: the text stream to work on, a field of the utterance. Default: "", ``txt``.
        """
        ...

    def tokenize(
        self, tokenizer: Tokenizer | Callable[[str], Any], remove_blanks: bool | None = None, of: str = ""
    ) -> Pipeline:
        """Turn ``txt`` into ``tokens`` (list of str) and ``label`` (list of int); ``txt`` stays unchanged.

        It runs only when labels are needed: a filter on their number decodes no audio. If more than 1 % of the labels are
        ``<unk>``, a warning with examples is logged, once per rank and epoch, after 1,000 labels or at the end.

        Args:
            tokenizer: a :class:`Tokenizer` (characters, SentencePiece, Hugging Face, tiktoken, or one of WeNet's own),
                or any function of the text that returns the labels, or (tokens, labels), or a ``BatchEncoding``.
            remove_blanks: whether to remove the blanks beside Chinese characters first. Default: None, which removes
                them if the tokenizer has no symbol for a blank, since they would become ``<unk>``; a plain function
                gets its text as it is.
            of: the text stream to work on, a field of the utterance. Default: "", ``txt``.
        """
        ...

    def align(
        self,
        tokenizer: Tokenizer | Callable[[str], Any],
        rate: float = 12.5,
        main: str | int = "SPEAKER_MAIN",
        keep_main_only: bool = True,
        bos_eos: tuple[int, int] | None = None,
        keep_and_shift: bool = False,
        audio_delay: float = 0.0,
        text_padding: int = 3,
        end_of_text_padding: int = 0,
        in_word_padding: int | None = None,
        zero_padding: int = -1,
    ) -> Pipeline:
        """Put the words of ``timeline`` on the frames of the codec, as a first column of ``feat``: Moshi's text stream.

        ``feat`` (T, N), the codes of an audio codec, becomes (T, 1 + N) int64. An utterance with decoded audio and no codes
        gets (T, 1), with T = ⌈seconds × ``rate``⌉. The planned length is counted in these frames.

        Each word is tokenized by itself. Its tokens come one a frame, from the one on in which it begins, in place of those
        of the word before that are still waiting. The frame before them has ``end_of_text_padding`` if there was none;
        frames after them ``in_word_padding`` as long as the word lasts, and all others ``text_padding``. Words that begin
        before the utterance, and those that do not last, are left out. The stream equals that of moshi-finetune's
        ``Interleaver``; the defaults are what it uses for Moshi. Where the timeline is not annotated, or None, there is
        ``zero_padding``. An utterance without the field is the failure ``missing_timeline``.

        Args:
            tokenizer: as for ``tokenize``. Events that have token ids are not tokenized.
            rate: frames of the codec in a second. Default: 12.5.
            main: the main speaker, by its name or by the number of its channel, from 0. Default: "SPEAKER_MAIN".
            keep_main_only: whether to leave out what others say. Default: True.
            bos_eos: the tokens before the first word of the main speaker after another one's, and before the first word of
                another one after the main speaker's. Needs ``keep_main_only=False``. Default: None, there are none.
            keep_and_shift: whether tokens that still wait when the next word begins come before its own, instead of being
                dropped. Default: False.
            audio_delay: seconds by which the text comes before the audio; words that end before are left out. Below 0 it
                comes later, after ``zero_padding``. Default: 0.0.
            text_padding: the token of frames without text. Default: 3.
            end_of_text_padding: the token of the frame before a word. Default: 0.
            in_word_padding: the token of frames in which a word goes on. Default: None, which means ``text_padding``.
            zero_padding: what stands for an unknown token, for which the model has no embedding. Default: -1.
        """
        ...

    def chat(
        self,
        tokenizer: Any,
        template: Mapping[str, str] | str | None = None,
        turns: Sequence[tuple[str, str]] | None = None,
        places: Callable[[Lengths], int] | None = None,
        placeholder: str | None = None,
        audio_token: int | None = None,
        loss: Sequence[str] = ("assistant",),
        bos: int | None = None,
        eos: int | None = None,
    ) -> Pipeline:
        """Turn a conversation into ``label``, all of its tokens with places for its recordings, and ``labels``, the same
        with -100 where no loss is.

        The conversation is the field ``messages``, a list of turns ``{"role": "user", "content": …}``. A content is a text,
        or a list of parts ``{"type": "text", "text": …}`` and ``{"type": "audio"}``; the n-th part of audio is the n-th
        recording in ``audio``, a list. With ``turns`` it is made of other fields. A Jinja template gets the field
        ``tools``, if there is one.

        ``audio_places`` has (first, count) for each recording: where its places are in ``label``, and how many; other
        streams have theirs (``wav_places``). It goes by the planned lengths of audio and decodes nothing: put it after
        what changes these. It runs only when labels are needed.

        What a conversation lacks, or has in another form, is the failure ``missing_messages``, ``bad_messages``,
        ``missing_text``, ``bad_text`` or ``missing_audio``; if no token has a loss, ``no_loss``. A chat template that
        changes earlier turns when others follow is ``rewritten_turns`` where several turns have a loss.

        Args:
            tokenizer: a tokenizer of the package ``transformers``. With a plain template also a :class:`Tokenizer`, or any
                function of the text that returns the labels, or (tokens, labels).
            template: a plain template, texts around the content by role, as in ``{"user": "<|user|>{}\\n", "assistant":
                "<|assistant|>{}<|end|>\\n"}``; or a Jinja template. Default: None, the tokenizer's own.
            turns: (role, text) for each turn, where a name in braces is the text of that field, or the place of the
                recording if it is a stream of audio, as in ``[("user", "{wav}Transcribe."), ("assistant", "{txt}")]``.
                ``{{`` is a brace. Default: None, the conversation is in ``messages``.
            places: a function of a recording's planned lengths that returns how many places it has, as in
                ``lambda n: n.frames // 4``. Default: None, one.
            placeholder: the text that the Jinja template makes of a part of audio, such as ``"<|AUDIO|>"``, if it takes
                contents as lists of parts. Default: None, it takes texts.
            audio_token: the token at the places of recordings. Default: None, that of ``placeholder`` if it is one token,
                or 0.
            loss: the roles whose turns have a loss: their content, and what ends the turn. If it is the assistant's alone,
                and the Jinja template has ``{% generation %}``, what that says. Empty: none. Default: ("assistant",).
            bos: a token to put first. Default: None. (Most Jinja templates have it.)
            eos: a token to put last, with a loss if the last turn has. Default: None.
        """
        ...

    def language(
        self,
        detect: Callable[[str], str] | None = None,
        limited_langs: Sequence[str] = ("zh", "en"),
        needs_text: bool = True,
    ) -> Pipeline:
        """Detect the language of ``txt``: set ``lang`` (an ISO 639-1 code), and ``task`` to "transcribe", like WeNet.

        The batch then has ``langs`` and ``tasks``, lists of str.

        Args:
            detect: a function of the text that returns its language; ``limited_langs`` is then ignored. Default: None,
                which decides by the script that has the most units in the text: words, or characters for Chinese,
                Japanese and Thai. Chinese characters count as Japanese in a text with kana, and if "zh" is not among
                ``limited_langs``.
            limited_langs: codes of the languages that may be found. Each must have a script of its own: of en, fr, de
                and other Latin ones, for example, only one can be given. A tie, or a text in none of these scripts,
                goes to the first one. Default: ("zh", "en").
            needs_text: False leaves utterances without a text as they are. Default: True, they are ``missing_text``.
        """
        ...

    def speaker(self, table: str | os.PathLike[str] | Mapping[str, int]) -> Pipeline:
        """Replace the name in ``speaker`` by its number; a name that is not in the table becomes 0, as in WeNet.

        The name is a field of the raw list, or ``KEY.speaker`` in a shard; an utterance without one is the failure
        ``missing_speaker``. The batch then has ``speaker`` (B,) int32.

        Args:
            table: a dict of numbers by name, or the path of a symbol table (one ``name number`` per line), which is
                read when a loader starts.

        Raises:
            ListError: when the loader starts, if the table cannot be read.
        """
        ...

    def filter(
        self,
        function: Callable[[Sample], bool] | None = None,
        min_frames: float = 10,
        max_frames: float = 10240,
        token_min_length: int = 1,
        token_max_length: int = 200,
        min_output_input_ratio: float = 0.0005,
        max_output_input_ratio: float = 1,
        length: Length | None = None,
        min_length: float | None = None,
        max_length: float | None = None,
        share: float | tuple[float, float] | None = None,
        salt: str = "",
    ) -> Pipeline:
        """Keep the utterances within bounds, or those for which your function returns true.

        Bounds are inclusive, and their defaults are WeNet's. Of text without audio, the number of labels counts.

        Args:
            function: gets the sample and returns whether to keep it; the bounds are then ignored. Default: None.
            min_frames: fewest planned feature frames, or hundredths of a second of audio if there is no feature stage
                before. Default: 10.
            max_frames: most frames, counted the same way. Default: 10,240.
            token_min_length: fewest labels; checked only after ``tokenize``. Default: 1.
            token_max_length: most labels; checked only after ``tokenize``. Default: 200.
            min_output_input_ratio: smallest number of labels per frame; checked only after ``tokenize``. Default:
                0.0005.
            max_output_input_ratio: largest number of labels per frame; checked only after ``tokenize``. Default: 1.
            length: another length to go by instead of all these, such as "tokens", "prompt.frames", or a function of all
                planned lengths, as in ``lambda n: n.frames // 4 + n.tokens``. Default: None.
            min_length: fewest of ``length``. Default: None, no bound.
            max_length: most of ``length``. Default: None, no bound.
            share: keep this share of all utterances instead, chosen by a hash of their keys: the same ones in every run
                and epoch, on any machine, and a smaller share is part of a larger one. Two numbers are a range: (0, 0.1) is
                0.1, and (0.1, 1) the others. Default: None.
            salt: any text; each gives another choice. Default: "".
        """
        ...

    def ctc_filter(self, subsampling: int | Callable[[int], int] = 4) -> Pipeline:
        """Leave out utterances whose CTC loss would be infinite, and count them as ``ctc_too_short``.

        A CTC alignment needs one step for each label and a blank between equal neighbours (Graves et al. 2006), so an
        utterance stays if ``len(label) + repeats <= subsampled frames``. Put it after everything that changes lengths
        or labels, and before the batches. It decides by the planned length and decodes nothing; an utterance that turns
        out shorter than planned is checked again when the batch is made.

        Args:
            subsampling: how the model shortens its input: 4, 6 or 8 for WeNet's ``conv2d``, ``conv2d6`` and ``conv2d8``
                (4 turns T frames into ((T - 1) // 2 - 1) // 2), 1 for none, or a function from the number of frames (of
                audio samples if there is no feature stage before) to the number of steps. Default: 4.
        """
        ...

    def fbank(
        self,
        num_mel_bins: int = 23,
        frame_length: float = 25.0,
        frame_shift: float = 10.0,
        dither: float = 0.0,
        window_type: str = "povey",
        of: str = "",
    ) -> Pipeline:
        """Compute Kaldi's log mel filter bank energies of ``wav``: ``feat`` (T, num_mel_bins) float32.

        Equal to ``torchaudio.compliance.kaldi.fbank(wav * 32768, energy_floor=0, …)`` without dither, to 1e-3 on speech.
        Where a band is far below its frame's peak, rounding shows in both, and ours is as near to float64. The bits are
        the same on every CPU and with every version of PyTorch. An utterance shorter than one window is the failure
        ``too_short``, one with precomputed features ``has_features``.

        Args:
            num_mel_bins: mel bands, which is F of the result. Default: 23.
            frame_length: length of a window in ms. Default: 25.0.
            frame_shift: step from one window to the next in ms. Default: 10.0.
            dither: standard deviation of the noise that is added, on the scale of 16-bit samples; it belongs to the
                utterance, so it is the same wherever that is computed. Default: 0.0.
            window_type: "povey", "hamming", "hanning", "rectangular" or "blackman". Default: "povey".
            of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
        """
        ...

    def mfcc(
        self,
        num_mel_bins: int = 23,
        frame_length: float = 25.0,
        frame_shift: float = 10.0,
        dither: float = 0.0,
        window_type: str = "povey",
        num_ceps: int = 40,
        high_freq: float = 0.0,
        low_freq: float = 20.0,
        of: str = "",
    ) -> Pipeline:
        """Compute Kaldi's mel-frequency cepstral coefficients of ``wav``: ``feat`` (T, num_ceps) float32.

        Coefficient 0 comes first, and all are liftered by 22. Equal to ``torchaudio.compliance.kaldi.mfcc(wav * 32768,
        …)`` without dither, as ``fbank`` is to its own. An utterance shorter than one window is the failure
        ``too_short``, one with precomputed features ``has_features``. The defaults are WeNet's, and one of
        ``num_mel_bins`` and ``num_ceps`` has to be given.

        Args:
            num_mel_bins: mel bands, more than 3. Default: 23.
            frame_length: length of a window in ms. Default: 25.0.
            frame_shift: step from one window to the next in ms. Default: 10.0.
            dither: standard deviation of the noise that is added, on the scale of 16-bit samples. Default: 0.0.
            window_type: "povey", "hamming", "hanning", "rectangular" or "blackman". Default: "povey".
            num_ceps: coefficients to keep, which is F of the result; not more than ``num_mel_bins``. Default: 40.
            high_freq: upper end of the bands in Hz; 0 is half the sample rate, and a negative number is that much below
                it. Default: 0.0.
            low_freq: lower end of the bands in Hz. Default: 20.0.
            of: the audio stream to work on, a field of the utterance. Default: "", the usual one.

        Raises:
            PipelineError: ``num_ceps`` is above ``num_mel_bins``, which it is by default.
        """
        ...

    def log_mel_spectrogram(
        self,
        n_fft: int = 400,
        hop_length: int = 160,
        num_mel_bins: int = 80,
        padding: int = 0,
        pad_or_trim: bool = False,
        max_duration: float = 30.0,
        of: str = "",
    ) -> Pipeline:
        """Compute Whisper's log mel spectrogram of ``wav`` at 16 kHz: ``feat`` (T, num_mel_bins) float32.

        T is samples // hop_length. Radford et al. 2022; equal to their code to 1e-4. Failures: ``wrong_rate`` if the
        rate is not 16 kHz, ``too_short`` if the audio is no longer than half a window or makes no frame,
        ``has_features`` with precomputed features.

        Args:
            n_fft: length of a window in samples, an even number. Default: 400.
            hop_length: step from one window to the next in samples. Default: 160.
            num_mel_bins: mel bands, which is F of the result; 128 for ``large-v3``. Default: 80.
            padding: zero samples to append. Default: 0.
            pad_or_trim: bring every utterance to ``max_duration``, by zeros or by cutting off its end, as Whisper's
                encoder needs it. Default: False.
            max_duration: seconds for ``pad_or_trim``. Default: 30.0.
            of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
        """
        ...

    def deltas(self, order: int = 2, win_length: int = 5, of: str = "") -> Pipeline:
        """Append to ``feat`` (T, F) its differences over time: (T, F · (order + 1)).

        Each order is the linear regression, over a few frames, of the order before, with frames at the edges repeated,
        equal to ``torchaudio.functional.compute_deltas``. Order 2 after ``mfcc`` gives Kaldi's usual MFCC + Δ + ΔΔ.

        Args:
            order: 1 appends Δ, 2 appends Δ and ΔΔ, and so on. Default: 2.
            win_length: frames of the regression, an odd number. Default: 5.
            of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
        """
        ...

    def delay(
        self,
        delays: Sequence[int],
        zero: int = -1,
        weights: Sequence[float] | None = None,
        text_padding: Sequence[int] = (3, 0),
        text_padding_weight: float = 1.0,
    ) -> Pipeline:
        """Move each column of codes to later frames, and say with ``loss`` which codes a model is to learn.

        ``feat`` (T, N), whole numbers such as a text stream and the codebooks beside it, becomes int64: column n comes
        ``delays[n]`` frames later, with ``zero`` before it, and as much of its end is gone. ``loss`` (T, N) float32 is the
        weight of each code in the loss, 0 where it is ``zero``: what is filled in or not known. ``pad(keep=["loss"])`` puts
        it into the batch, with 0 as padding. The length stays.

        Args:
            delays: frames for each column. Moshi's are ``[0] + 2 * [0, 1, 1, 1, 1, 1, 1, 1]``.
            zero: what stands for no code. Default: -1.
            weights: weight of each column, 0 for one that is only heard. Default: None, all have 1.
            text_padding: codes of the first column that say that no word is there. Default: (3, 0), Moshi's.
            text_padding_weight: what the weight of ``text_padding`` is multiplied by; moshi-finetune's example has 0.5.
                Default: 1.0.
        """
        ...

    def global_cmvn(
        self, stats: str | os.PathLike[str] | Mapping[str, Any], norm_var: bool = True, of: str = ""
    ) -> Pipeline:
        """Normalize ``feat`` by the mean and standard deviation of each bin over the whole corpus.

        Args:
            stats: path or URL of WeNet's ``global_cmvn`` (JSON) or of Kaldi's statistics (binary or text), which is
                read when a loader starts; or a dict with the content of WeNet's JSON. The command ``uio cmvn`` computes
                them.
            norm_var: whether to divide by the standard deviation; False only subtracts the mean. Default: True.
            of: the audio stream to work on, a field of the utterance. Default: "", the usual one.

        Raises:
            ListError: when the loader starts, if the file cannot be used.
            PipelineError: while running, if ``feat`` has another number of bins.
        """
        ...

    def spec_aug(
        self, num_t_mask: int = 2, num_f_mask: int = 2, max_t: int = 50, max_f: int = 10, of: str = ""
    ) -> Pipeline:
        """Mask random spans of frames and of bins in ``feat`` with zeros (SpecAugment, Park et al. 2019, no warping).

        Spans are drawn as WeNet draws them.

        Args:
            num_t_mask: spans of frames to mask, 0 or more. Default: 2.
            num_f_mask: spans of bins to mask, 0 or more. Default: 2.
            max_t: longest span of frames; the shortest is 1. Default: 50.
            max_f: widest span of bins; the narrowest is 1. Default: 10.
            of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
        """
        ...

    def spec_sub(self, max_t: int = 20, num_t_sub: int = 3, of: str = "") -> Pipeline:
        """Replace random spans of ``feat`` by earlier frames of the same utterance (SpecSub, Wu et al. 2021: U2++).

        As in WeNet, three numbers are drawn for each span, evenly: its start over all frames, its length (cut off at
        the end of the utterance), and how many frames earlier its substitute begins, from 0 to the start.

        Args:
            max_t: longest span in frames; the shortest is 1. Default: 20.
            num_t_sub: spans to replace. Default: 3.
            of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
        """
        ...

    def spec_trim(self, max_t: int = 20, of: str = "") -> Pipeline:
        """Cut a random number of frames off the end of ``feat`` (TrimTail, Song et al. 2022, as in WeNet).

        The number is drawn evenly from 1 to ``max_t``. If it is half of the utterance or more, nothing is cut. The
        planned length is what remains.

        Args:
            max_t: most frames to cut off. Default: 20.
            of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
        """
        ...

    def stack(self, frames: int = 7, stride: int = 6, of: str = "") -> Pipeline:
        """Join neighbouring frames of ``feat`` into one wider frame, at a lower frame rate.

        (T, F) becomes (⌈T / stride⌉, frames × F). Frame i has those around frame i × stride: (frames - 1) // 2 before it,
        the others after it; beyond the ends the first and the last frame are repeated. This is the low frame rate of
        FunASR (``apply_lfr`` with its ``lfr_m`` and ``lfr_n``).

        Args:
            frames: how many frames to put together, 1 or more. Default: 7.
            stride: how many frames to go on for the next one, 1 or more. Default: 6.
            of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
        """
        ...

    def activity(
        self,
        speakers: int | Sequence[str] = 4,
        by: str = "centre",
        powerset: int | None = None,
        extra: str = "fail",
        subsampling: int = 1,
        shift: float | None = None,
    ) -> Pipeline:
        """Make the targets of diarisation of the ``timeline``: who speaks in which frame.

        ``activity`` (T, S) float32 has a column for each speaker. T is the number of frames of ``feat``, whose grid is that
        of the stages before; without features, give ``shift``. ``known`` (T,) float32 is 1 where a frame's centre is
        annotated (a UEM says so, or there is none). Put it after all that changes the number of frames, and into the batch
        by ``pad(keep=["activity", "known"])``. Times that are no numbers are the failure ``bad_timeline``.

        Args:
            speakers: how many columns there are, for speakers in the order of their first starts; or the names of the
                speakers, one for each column. Default: 4.
            by: "centre", 1 if a speaker's segments cover the frame's centre, or "share", which share of the time from
                frame to frame they cover. Default: "centre".
            powerset: how many may speak at once, for ``powerset`` (T,) int64: the class of the set of those who speak, as
                in pyannote 3 (Plaquet and Bredin 2023): nobody, each alone, then each pair. Of more at once, it is the
                first class of so many; of shares, those from 0.5 on speak. Default: None, no such field.
            extra: what to do with an utterance that has more speakers than columns, or one without a column: "fail"
                (``too_many_speakers``), or "drop" their segments (noted as ``dropped_speakers``). Default: "fail".
            subsampling: frames that the model makes one of, as by strided convolutions: T becomes ⌈T / subsampling⌉.
                Default: 1.
            shift: seconds from frame to frame, for utterances without features or with precomputed ones. Default: None,
                that of the features.
        """
        ...

    def turn_end(
        self, silence: float = 0.5, speakers: Sequence[str | int] | None = None, shift: float | None = None
    ) -> Pipeline:
        """Mark the frames in which a turn has ended, by the ``timeline``: what a model that endpoints learns to tell.

        ``turn_end`` (T,) int64 is 1 in frames whose centre lies in the silence behind the last word of a turn, until
        anybody speaks again, and 0 elsewhere; -1 where the timeline is not annotated. A silence is the end of a turn if
        another speaker is the next one, or if it lasts for ``silence`` seconds or more; otherwise it is a pause (a "hold"
        and no "shift" of Ekstedt and Skantze 2022). After the last word of all, a turn has ended.

        T is the number of frames of ``feat``; without features, give ``shift``. Put it after all that changes the number of
        frames, and into the batch by ``pad(keep=["turn_end"])``, or ``chunks(…, along=["turn_end"])``. Times that are no
        numbers are the failure ``bad_timeline``.

        Args:
            silence: seconds of silence from which on a turn has ended, even if the same speaker goes on. Default: 0.5.
            speakers: whose turns to mark: names, or numbers of channels, counted from 0. Default: None, of all.
            shift: seconds from frame to frame, for utterances without features, or with precomputed ones. Default: None,
                that of the features.
        """
        ...

    def map(self, function: Callable[..., Any], length: MappedLength | None = None) -> Pipeline:
        """Apply your function to each utterance (or, after ``pad``, to each batch).

        Args:
            function: gets the sample and returns it, changed in place or as a new mapping. If it has a parameter
                ``rng``, it also gets the sample's own ``numpy.random.Generator``, so that its random choices are
                repeatable.
            length: what the function does to the length. "same" (it keeps it) or a function from the old planned length
                to the new one (in frames after a feature stage, otherwise in samples) lets it run when the batch is
                made. Default: None, not known: it runs where it stands, and whatever it touches is computed there,
                audio included.
        """
        ...

    def flat_map(self, function: Callable[..., Any]) -> Pipeline:
        """Apply your function that turns each utterance into any number of utterances.

        Each result gets an origin of its own, so that later stages draw random numbers of their own for it. Directly
        after ``open_files`` the function gets files (with ``file.open()`` and ``file.url``): that is how to read other
        archive formats. It must give the same results for the same input, because a resumed run calls it again and
        skips what was delivered already.

        Args:
            function: gets the sample, or the file, and returns or yields samples or mappings. It runs where it stands;
                what it touches is computed there. If it has a parameter ``rng``, it also gets the sample's own
                ``numpy.random.Generator``.
        """
        ...

    def through(self, node: type[BaseNode[Any]], *args: Any, **kwargs: Any) -> Pipeline:
        """Add your own node: ``node(source, *args, **kwargs)``, where ``source`` is the node before.

        Args:
            node: a subclass of :class:`Node`, or any ``torchdata.nodes.BaseNode``. Its state must consist of ints,
                strings, lists and dicts with string keys, and describe the first item that is not delivered yet.
            *args: further positional arguments for ``node``.
            **kwargs: keyword arguments for ``node``.
        """
        ...

    def cache(
        self,
        folder: str | os.PathLike[str],
        fields: Sequence[str] | None = None,
        size: int | str = "100GB",
        read_only: bool = False,
    ) -> Pipeline:
        """Store the results of the stages before it, and read them from then on instead of computing them again.

        Put it after decoding, features without randomness, or a ``map`` that encodes, and before random augmentation. A
        later epoch, another rank or run, and another pipeline that begins with the same stages find what is there; what is
        not there, or is damaged (``damaged_cache``), is computed and kept. Batches are the same bit by bit whether the
        folder is full, empty or half gone, and so is a resume. A record is known by the audio's file, with its size and
        time of change or ETag, the fields that the stages read, and the stages with all arguments and the code of
        functions; not by what a function gets elsewhere, as from a file. Any number of processes and machines
        may use the folder at once. ``uio cache`` shows, checks and prunes it.

        A ``map`` without ``length`` is left out on a hit only where it stands directly before ``cache``.

        Args:
            folder: path or URL of the cache; any number of pipelines may share it.
            fields: names of the fields to keep, as in ``["feat"]``; others that these stages make or change are gone, the
                waveform among them. Default: None, all that they make, but not what they make of text alone.
            size: bytes of the folder from which on nothing is added, as a number or as text. Default: "100GB".
            read_only: find what is there, and add nothing. Default: False.

        Raises:
            PipelineError: an argument breaks a rule, or there is nothing before it whose result it can keep.
        """
        ...

    def encoded(self, folder: str | os.PathLike[str], fields: Sequence[str], by: str) -> Pipeline:
        """Read fields that ``uio.encode`` has stored, such as the codes of a codec, in place of the audio.

        A frozen model makes them, once and for ever: ``uio.encode(loader, model)`` runs it over whole batches of a pipeline
        that ends in ``.encoded(…)``, a batch stage and ``pad``. From then on pipelines with the same stages before
        ``encoded`` have the fields; audio and features are gone, and neither read nor decoded. The planned length stays
        that of the audio. Nothing before may draw random numbers.

        An utterance that has not been encoded is the failure ``not_encoded``; if none has, that is an error.

        Args:
            folder: path or URL of the cache; any number of pipelines may share it, with ``cache``, too.
            fields: names of the fields that the model makes, as in ``["codes"]``.
            by: name of the model. Another model, or other weights, need another name.

        Raises:
            PipelineError: an argument breaks a rule.
        """
        ...

    def shuffle(self, shuffle_size: int = 1500) -> Pipeline:
        """Shuffle with a buffer: hold a number of utterances, and for each new one give a random one of them.

        After ``list_files`` or ``open_files`` it shuffles lines or files. An utterance that has been held while 3 ×
        ``shuffle_size`` others passed is let go next; this bounds how many headers a resumed run has to read again.

        Args:
            shuffle_size: how many utterances to hold, at least 1. Default: 1,500.
        """
        ...

    def sort(self, sort_size: int = 500, length: Length | None = None) -> Pipeline:
        """Sort by planned length in a buffer: collect utterances, give them shortest first, and start again.

        Batches of neighbours then need little padding. WeNet advises a buffer that is not larger than that of
        ``shuffle``.

        Args:
            sort_size: how many utterances to collect, at least 1. Default: 500.
            length: another length to sort by, such as "tokens", "prompt.frames", or a function of all lengths. Default:
                None, the planned frames.
        """
        ...

    def batch(self, batch_size: int = 16, drop_last: bool = False) -> Pipeline:
        """Make batches of a fixed number of utterances.

        Args:
            batch_size: utterances per batch, at least 1. Default: 16.
            drop_last: whether to leave out the last batch of a lane if it is smaller; its utterances are then counted
                as ``drop_last``. Default: False.
        """
        ...

    def dynamic_batch(
        self,
        max_frames: int | None = None,
        max_samples: int | None = None,
        quadratic: int | None = None,
        drop_last: bool = False,
        min_batch_size: int = 1,
        max_tokens: int | None = None,
        length: Length | None = None,
    ) -> Pipeline:
        """Make batches of utterances in their order, each as large as a budget allows.

        Lengths are planned ones: feature frames, or units of 10 ms of audio if there is no feature stage. An utterance
        of which ``min_batch_size`` copies exceed the budget is the failure ``over_budget``; so no batch before the last
        of a lane has fewer than ``min_batch_size`` utterances.

        Args:
            max_frames: the budget in padded frames: the longest utterance × the number of utterances is never more
                (WeNet's ``max_frames_in_batch``). Default: None, which is 12,000 unless another budget is given.
            max_samples: instead of ``max_frames``, a budget in padded audio samples, at the utterances' own rate; for
                waveforms only. Default: None.
            quadratic: count an utterance of length n as n + n² / quadratic, so that long utterances, whose attention
                costs the square of their length, come in smaller batches. A length in the unit of the budget (Lhotse's
                ``quadratic_duration``). Default: None, count n.
            drop_last: whether to leave out the last batch of a lane if another utterance would have fitted; its
                utterances are then counted as ``drop_last``. Default: False.
            min_batch_size: fewest utterances of a batch; if fewer remain at the end of a lane, they are left out and
                counted as ``min_batch_size``. Default: 1.
            max_tokens: a budget in padded tokens instead; an utterance has as many as it has labels, or ``length`` says.
                Default: None.
            length: another length to go by, such as "tokens", "prompt.frames", or a function of all planned lengths, as
                in ``lambda n: n.frames // 4 + n.tokens``. Default: None, planned frames.
        """
        ...

    def bucket_batch(
        self,
        bucket_boundaries: Sequence[int] | Sequence[tuple[int, int]] | None = None,
        bucket_batch_sizes: Sequence[int] | None = None,
        max_frames: int | None = None,
        num_buckets: int | tuple[int, int] | None = None,
        max_wait: int | None = None,
        max_samples: int | None = None,
        quadratic: int | None = None,
        drop_last: bool = False,
        min_batch_size: int = 1,
        window: int | None = None,
        max_tokens: int | None = None,
        length: Length | Pair | None = None,
        max_cost: int | None = None,
        cost: Callable[..., float] | None = None,
    ) -> Pipeline:
        """Make batches of utterances of similar planned length, in random order, each as large as the budget allows.

        Give one budget: ``max_frames``, ``max_samples``, ``max_tokens`` or ``max_cost``. Then ``window`` utterances are
        held, sorted by length, and a batch is a run of neighbours from anywhere among them. This leaves the least padding,
        every batch is full, and no ``shuffle`` or ``sort`` is needed before. At each step, the batches of all lanes come
        from the same part of their windows and are equally full, by draws that lanes share without communication. So ranks
        that step together hardly wait for each other.

        With ``bucket_boundaries``, ``bucket_batch_sizes``, ``num_buckets`` or ``max_wait`` there are buckets instead:
        utterances are collected in them by length, and each full bucket is a batch. Lanes then fill theirs at different
        steps. Buckets can go by two lengths, such as frames and tokens, where both are padded: boundaries are then pairs,
        the most frames and the most tokens of a bucket. An utterance goes to the first bucket that holds it by both. One
        that is longer than all goes to the last one, within the budget; without a budget it is the failure
        ``over_budget``. ``max_frames`` bounds the longest first length × the number of utterances, ``max_tokens`` that of
        the second.

        Args:
            bucket_boundaries: rising lengths in frames; bucket i takes lengths below boundary i, and the last bucket
                the rest. Or rising pairs, such as ``[(500, 20), (500, 60), (1_000, 50)]``, the longest that each bucket
                takes. Default: None. Buckets then find theirs from the first 1,000 utterances of the lane: so that each
                bucket gets equally many frames, or pairs that leave little padding. ``uio simulate`` tells those of all.
            bucket_batch_sizes: how many utterances fill each bucket, one number more than there are boundaries (WeNet's
                way), or one for each pair. Default: None.
            max_frames: a budget in padded frames: the longest utterance × the number of utterances is never more.
                Default: None.
            num_buckets: how many buckets to make if boundaries are found automatically; a pair such as ``(10, 3)`` makes
                10 by frames, and of each of them 3 by tokens. Default: None, which is 10 if there are buckets.
            max_wait: a bucket whose oldest utterance has waited while this many others came is given although it is not
                full. Default: None, which is 10,000 if there are buckets.
            max_samples: a budget in padded audio samples, at the utterances' own rate; for waveforms only. Default:
                None.
            quadratic: count an utterance of length n as n + n² / quadratic, so that long utterances, whose attention
                costs the square of their length, come in smaller batches. A length in the unit of the budget (Lhotse's
                ``quadratic_duration``). Default: None, count n.
            drop_last: whether to leave out, at the end of a lane, the utterances of batches that are not full; they are
                then counted as ``drop_last``. Default: False.
            min_batch_size: fewest utterances of a batch; fewer are left out and counted as ``min_batch_size``. An
                utterance of which this many copies exceed the budget is the failure ``over_budget``. A bucket that has
                waited and holds fewer takes some from its neighbours; if fewer remain at the end of a lane, they join the
                last batch of buckets if its budget allows it. Default: 1.
            window: how many utterances to hold and choose neighbours from, if there are no buckets. None waits while more
                than 10 × as many others come. Default: None, which is 1,500.
            max_tokens: a budget in padded tokens instead; an utterance has as many as it has labels, or ``length`` says.
                Default: None.
            length: another length to go by, such as "tokens", "prompt.frames", or a function of all planned lengths, as
                in ``lambda n: n.frames // 4 + n.tokens``; or a tuple of these, for pairs and for ``cost``. Default: None,
                planned frames, or ``("frames", "tokens")`` for two.
            max_cost: a budget in what ``cost`` counts: ``cost(longest, …)`` × the number of utterances is never more.
                Default: None.
            cost: a function of lengths: what an utterance costs that is padded to them, which does not fall where one
                rises. Of frames, as in ``lambda frames: frames + frames**2 / 3_000``; of frames and tokens, as in
                ``lambda frames, tokens: frames // 4 * (tokens + 1)``, what a transducer's joint network computes; or of
                those that ``length`` names. Batches of a step then cost the same on all ranks. Default: None.
        """
        ...

    def balanced_batch(self, by: str, classes: int, each: int) -> Pipeline:
        """Make batches of ``classes`` values of a field, such as speakers, with ``each`` utterances of each of them.

        This is for metric learning and speaker models. An epoch has about as many utterances as the source: each comes at
        least once, unless its value would fill more than its place in every batch. A value with fewer than ``each``
        utterances repeats them, as others do to fill their last group; what comes again is augmented anew. Those of a
        value stand side by side, and all lanes have equally many batches. What a filter leaves out, or fails, leaves its
        batch smaller.

        The order of the source is drawn for it, so ``shuffle`` and ``sort`` are not needed. The source must know all its
        utterances before: a table, a raw list, or an index of shards. Their values are read when a loader starts.

        Args:
            by: the field, such as "speaker". An utterance that lacks it is an error.
            classes: how many values a batch has, at least 1.
            each: how many utterances of each of them, at least 1.

        Raises:
            ListError: when the loader starts, if there are fewer values, or an utterance has no such field.
        """
        ...

    def pack(
        self,
        max_tokens: int | None = None,
        rows: int = 1,
        window: int = 1000,
        overflow: str | None = None,
        length: Length | None = None,
        keep: Sequence[str] = (),
        pad: int = 0,
        ignore: int = -100,
        layout: str = "segments",
        max_frames: int | None = None,
        multiple_of: int | None = None,
        fixed: bool = False,
    ) -> Pipeline:
        """Make rows of exactly ``max_tokens`` tokens, or batches of up to ``max_frames`` frames of audio, of whole
        utterances with hardly any padding. It makes the batch.

        A row begins with the utterance that has waited longest. The next ones follow as they came until less than a
        quarter of the row is left; then come those that fill it best, of all in the window.

        Of ``max_tokens``: a dict of ``keys`` (list of str, in the order of the parts); ``tokens`` and ``labels`` (R,
        ``max_tokens``) int64; ``position_ids``, which begin at 0 in each part, and ``segment_ids``, the number of the part
        in its row from 1 on, 0 for padding, both of the same shape; and for variable-length attention over the rows one
        after the other ``cu_seqlens`` (int32, from 0 on; the padding at a row's end is a segment of its own) and
        ``max_seqlen`` (int). ``labels`` are the tokens, not shifted, with ``ignore`` where no loss is; an utterance with a
        field ``labels`` of its own has these.

        If ``length`` counts more than tokens, such as frames of audio, the places of a part that its tokens do not fill
        come first, for what the model puts there; ``feats`` (ΣT, F) has the features of all parts one after the other,
        ``feats_lengths`` (N,) int32 how many frames each has, and ``feats_places`` (N, 2) int64 where they belong: the
        first place of the part in the rows one after the other, and how many there are. Without features it is ``pcm``.
        Streams (``of="prompt"``) come one after the other in the same way, as ``prompt_feats``, ``prompt_pcm`` or
        ``prompt_target`` with their lengths. Where utterances say at which of their tokens a recording belongs, as those of
        ``chat`` do (``wav_places``, ``prompt_places``: the first place and how many there are), there is
        ``prompt_feats_places``, too. The audio of a batch has one rate, as with ``pad``.

        Of ``max_frames``, where a batch is one row: ``keys``; ``feats`` (ΣT, F) float32, the features of all utterances one
        after the other, or ``pcm`` (ΣS,), their waveforms; ``feats_lengths`` (N,) int32; ``cu_seqlens`` (N + 1,) int32,
        where each begins, and the end; ``max_seqlen`` (int), the longest of these segments; and if there are labels,
        ``target`` (ΣU,) int64 and ``target_lengths`` (N,) int32. Streams come as above.

        An utterance that is longer than a row is the failure ``over_budget``, or what ``overflow`` says.

        Args:
            max_tokens: tokens of a row. Default: None; give this or ``max_frames``.
            rows: how many rows are a batch; the last one of a lane may have fewer. Default: 1.
            window: how many utterances to hold and choose from. Default: 1,000.
            overflow: "drop": leave out utterances that are longer than a row, counted as ``overflow``; "split": cut
                tokens into parts; "alone": make a batch of such an utterance, whose only row is as long as it is. Default:
                None.
            length: what counts: another length than "tokens", or a function of all planned lengths, as in
                ``lambda n: n.frames // 4 + n.tokens``. Default: None, tokens.
            keep: names of other fields: numbers become a tensor (N,), arrays are put one after the other and have
                ``NAME_lengths``, everything else is a list. Default: (), none.
            pad: the token of padding and of places that are not tokens. Default: 0.
            ignore: the label there. Default: -100, torch's.
            layout: "touchnet" gives ``input_ids``, ``labels``, ``position_ids`` and ``sentence_lens`` (the length of
                the part that a place belongs to) instead of the above. Default: "segments".
            max_frames: frames of a batch at most: feature frames, or 10 ms of audio without features. Default: None.
            multiple_of: with ``max_frames``: each utterance begins at a multiple of so many frames, and the batch ends at
                one; zeros are in between, and belong to the segment before them. Default: None, there is nothing between.
            fixed: with ``max_frames``: whether every batch has exactly so many frames. The zeros at its end are further
                segments, none longer than the longest utterance. Default: False.
        """
        ...

    def chunks(
        self,
        seconds: float,
        left: float = 0.0,
        right: float = 0.0,
        rows: int = 8,
        along: Sequence[str] | Mapping[str, float] = (),
        shift: float | None = None,
    ) -> Pipeline:
        """Make batches for streaming models: each row carries one recording after another, chunk after chunk.

        A model keeps the state of a row from batch to batch, and begins anew where ``reset`` is true. When a recording
        ends, the next one that comes takes its row. ``pad`` makes the tensors, as of any other batch, and adds
        ``chunk_lengths`` (B,), the frames of each chunk, 0 in a row that has none; ``reset`` (B,) bool; ``position`` (B,),
        the number of the chunk's first frame in its recording; and ``lane``, a number: states of the model belong to it, as
        each lane has rows of its own. Without features, all this is in samples of audio. A row of ``feats`` is always as
        long as the chunk with its context.

        Audio is decoded in parts of 30 s as chunks come, after a resume, too, if its header has its length (wav, flac,
        ogg, …) and only ``mono``, ``fbank``, ``mfcc`` (both without dither), ``global_cmvn`` and labels of frames come
        between. Otherwise a recording is decoded as a whole, and held while in a row: 115 MB an hour for 80 bins, or for
        16-bit audio of 16 kHz. A part that fails is counted and masked, and its row is reset behind it. If that is the
        first one, or the whole, the row is masked for as long as it was planned to be.

        Args:
            seconds: seconds of a chunk, above 0.
            left: seconds of context before each chunk in ``feats`` or ``pcm``; zeros before the beginning. Default: 0.0.
            right: seconds of context behind it, as far as the recording goes. Default: 0.0.
            rows: recordings side by side, at least 1. Default: 8.
            along: names of other fields that have an entry for each frame, such as ``["activity"]``, and are cut alike,
                without context; or a mapping to their entries a second, ``{"codes": 12.5}``. The batch has them without
                being told. ``timeline`` is always cut; ``label`` is in a chunk only if it is among these. Default: (),
                none.
            shift: seconds from frame to frame, for features that no stage of the pipeline makes. Default: None, that of
                the stages.
        """
        ...

    def pad(
        self,
        pcm: bool = False,
        keep: Sequence[str] = (),
        layout: str = "padded",
        collate: Collate | None = None,
        value: float | Mapping[str, float] = 0.0,
        mask: bool = False,
        names: Mapping[str, str | None] | None = None,
        order: str = "longest",
        lengths: Literal["int32", "int64"] = "int32",
        transpose: bool | Sequence[str] = False,
    ) -> Pipeline:
        """Make the padded batch that a model takes, longest utterance first, with WeNet's names. Decoding happens here.

        A dict of ``keys`` (list of str); ``feats`` (B, T, F) float32, padded by 0, or if they are whole numbers, such as
        codes, int64, padded by -1, and ``feats_lengths`` (B,) int32; if there are no features, ``pcm`` (B, S) float32, or
        (B, C, S) of audio with several channels, and ``pcm_length`` (B,) int32 instead; if there are labels,
        ``target`` (B, U) int64, padded by -1, and ``target_lengths`` (B,) int32, or, if each has one number as its
        ``label`` (a class), ``label`` (B,) int64 instead; and if all utterances have them, ``speaker``, numbers (B,) int32
        or a list of names, and the lists ``langs`` and ``tasks``. Each stream that a stage works on (``of="prompt"``)
        comes in the same way, as ``prompt_feats``, ``prompt_pcm`` or ``prompt_target`` with its lengths. If utterances have
        several recordings there (lists), their rows come one after the other, and ``prompt_counts`` (B,) says how many each
        has.

        The audio of a batch has one rate. Utterances of another rate than most of their batch (of equally many, than the
        lower) are the failure ``mixed_rates``: put ``.resample(16_000)`` before the features. Precomputed features have
        no rate.

        Args:
            pcm: whether to have the waveforms as ``pcm`` although there are features. Default: False.
            keep: names of other fields that the batch has, too. If all utterances have numbers there, they are a tensor
                (B,); if arrays (T,) or (T, K), such as the codes of a codec, they are padded (floats by 0, whole numbers
                by -1, ``labels`` by -100) and have ``NAME_lengths``; and otherwise, as texts, a list, with None for an
                utterance without such a field. With "speaker", there is one even if some lack it. Default: (), none.
            layout: "padded"; "ragged", lists of tensors; or "nested", torch's nested tensors. Default: "padded".
            collate: a function that makes the batch, a dict, of the list of finished utterances instead; they come longest
                first. Default: None.
            value: what features are padded with; or a mapping with the padding of any outputs, such as
                ``{"feats": -11.5, "target": -100}``. Default: 0.0, and for other outputs as said above.
            mask: whether to have ``feats_mask``, ``pcm_mask``, ``target_mask``, … (B, T) bool, true where there is no
                padding. Default: False.
            names: new names of outputs, by those above, and None for outputs to leave out, as in
                ``{"feats": "input_features", "target": "labels", "keys": None}``. Default: None, all as above.
            order: "longest" utterance first, or "kept", as they came. Default: "longest".
            lengths: type of all lengths, "int32" or "int64". Default: "int32".
            transpose: whether features are (B, F, T) instead of (B, T, F), as Hugging Face's Whisper takes them; or the
                outputs that are to be so, as ["feats", "loss"]. Default: False.
        """
        ...

    def split(self, fraction: float) -> tuple[Pipeline, Pipeline]:
        """Return two pipelines, as of training and validation: together they have every utterance, each in one of them.

        A hash of its key decides, whatever the order, the file, the seed or the rank: an utterance stays where it is
        when data are added. Both read the same list and headers, and count what they leave out as ``other_share``. A
        part may be split again. Split before ``segments`` and ``flat_map``, whose pieces have keys of their own.

        Args:
            fraction: about this share of the utterances is in the first part; above 0 and below 1.

        Raises:
            PipelineError: ``fraction`` breaks that rule, or batches or files come out instead of utterances.
        """
        ...

    def as_dataset(self, **options: Any) -> PipelineDataset:
        """Wrap the pipeline for torch's ``DataLoader`` and torchdata's ``StatefulDataLoader``.

        Give it to them with ``batch_size=None``, since batches come ready; see :class:`PipelineDataset`.

        Args:
            **options: those of :class:`Loader`, except for ``num_workers``, ``prefetch_factor``, ``pin_memory``,
                ``uneven`` and ``steps_per_epoch``, which belong to the other loader or to its trainer.

        Raises:
            PipelineError: an option breaks a rule.
        """
        ...

    def as_datapipe(self, **options: Any) -> PipelineDataPipe:
        """Wrap the pipeline as an ``IterDataPipe``, for graphs of torch's own datapipes.

        Args:
            **options: as for :meth:`as_dataset`.

        Raises:
            PipelineError: an option breaks a rule.
        """
        ...

    def peek(self) -> Peek:
        """Run one utterance, and return a table of it after every stage: fields, shapes, planned length, time."""
        ...

    def plot(self, path: str | os.PathLike[str], count: int = 3) -> None:
        """Draw waveform, features and masks of the first utterances to a PNG. Needs ``pip install 'uio_pipes[plot]'``.

        One with a ``timeline`` is drawn on an axis in seconds: channels with their words, activity and text stream.

        Args:
            path: the file to write.
            count: how many utterances to draw, at least 1. Default: 3.

        Raises:
            PipelineError: ``count`` is below 1, there is neither audio nor features, or matplotlib is missing.
        """
        ...
    if not TYPE_CHECKING:
        def __getattr__(self, name: str) -> Any:
            message = f"a Pipeline has no {name!r}"
            if not name.startswith("_"):
                near, here = (
                    nearest(name, (own for own in dir(type(self)) if own[0] != "_")),
                    answer("Pipeline", name),
                )
                message += f"; {here}" if here else f"; did you mean {near!r}?" if near else ""
            raise AttributeError(message, name=name, obj=None)

    def __bool__(self) -> bool: ...
