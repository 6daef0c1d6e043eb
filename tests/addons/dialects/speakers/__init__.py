"""The four dialects as their official SDKs speak them: what a harness sends, and what it makes of the bytes it gets.

Each module has one :class:`~tests.addons.dialects.speakers.base.Speaker`. Bytes of the real gateway go through the
real SDK, by a transport that answers with them; nothing of a reply is read by code of ours but for what no SDK keeps.
"""

from tests.addons.dialects.speakers.base import Ask, Block, Speaker
from tests.addons.dialects.speakers.chat import Chat
from tests.addons.dialects.speakers.gemini import Gemini
from tests.addons.dialects.speakers.messages import Messages
from tests.addons.dialects.speakers.responses import Responses

SPEAKERS: dict[str, Speaker] = {one.name: one for one in (Chat(), Responses(), Messages(), Gemini())}

__all__ = ["SPEAKERS", "Ask", "Block", "Speaker"]
