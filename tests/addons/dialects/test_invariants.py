"""Every case in every dialect, streamed and not, with the sampled tokens cut in every way."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.addons.dialects.cases import CASES, Case
from tests.addons.dialects.invariants import check_continued, check_split, check_streamed_is_whole, told
from tests.addons.dialects.served import Served
from tests.addons.dialects.speakers import SPEAKERS, Speaker

PAIRS = [(SPEAKERS[name], case) for case in CASES for name in case.dialects]
IDS = [f"{case.name}-{speaker.name}" for speaker, case in PAIRS]
each_case_in_each_dialect = pytest.mark.parametrize(("speaker", "case"), PAIRS, ids=IDS)


@each_case_in_each_dialect
def test_streamed_is_whole_and_the_next_call_continues_it(served: Served, speaker: Speaker, case: Case) -> None:
    whole = told(served, speaker, case, stream=False)
    check_streamed_is_whole(whole, told(served, speaker, case, stream=True))
    check_streamed_is_whole(whole, told(served, speaker, case, stream=True, size=10_000))
    check_continued(served, speaker, case, whole)


@each_case_in_each_dialect
def test_each_byte_may_be_a_token(served: Served, speaker: Speaker, case: Case) -> None:
    whole = told(served, speaker, case, stream=False)
    bytewise = served.bytewise(case.text)
    check_split(speaker, whole, told(served, speaker, case, stream=True, ids=bytewise))
    check_split(speaker, whole, told(served, speaker, case, stream=False, ids=bytewise))


@pytest.mark.parametrize("speaker", SPEAKERS.values(), ids=list(SPEAKERS))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_tokens_and_chunks_may_end_anywhere(served: Served, speaker: Speaker, data: st.DataObject) -> None:
    case = data.draw(st.sampled_from([case for case in CASES if speaker.name in case.dialects]))
    cuts = data.draw(st.sets(st.integers(1, max(len(case.text.encode()), 1)), max_size=12), label="tokens end at")
    size = data.draw(st.integers(1, 9), label="tokens a chunk")
    ids = served.spell(case.text, sorted(cuts))
    whole = told(served, speaker, case, stream=False, ids=ids)
    check_streamed_is_whole(whole, told(served, speaker, case, stream=True, ids=ids, size=size))
    check_split(speaker, told(served, speaker, case, stream=False), whole)
