"""Small SQuAD files, questions, a configuration and flags for the tests around SQuAD."""

import json

from albert.experiments import demo_data
from albert.io import file_io
from albert.tasks.squad import features as squad_features
from tests.support import builders

FIELDS = """
    qas_id unique_id doc_span_index tok_start_to_orig_index tok_end_to_orig_index
    token_is_max_context input_ids segment_ids p_mask paragraph_len start_position end_position
    is_impossible
""".split()
TEXT = (
    "The old harbour lies at the end of a narrow road between two hills. Every morning the boats "
    "leave before the sun is up, and they come back at noon. My grandmother was a teacher."
)
# Article 1 of the Universal Declaration of Human Rights, Genesis 1:1-2, John 1:1 and words with
# rare signs, in the forms in which these languages are written: syllables, consonants with vowel
# signs, letters with several marks.
OTHER_SCRIPTS = {
    "latin": "Cafés à Paris: naïve façade, Đường phố Hà Nội rất đẹp, Über Łódź señor o\u0308l Å.",
    "greek": "Ἐν ἀρχῇ ἦν ὁ λόγος, καὶ ὁ λόγος ἦν πρὸς τὸν θεόν ΐ ᾧ ΣΟΦΟΣ",
    "cyrillic": "Ёлка и чай стоят у дома ещё й ї Йод краї́на чай",
    "devanagari": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात क़लम ज़रूर स्वतन्त्रता",
    "bengali": "সমস্ত মানুষ স্বাধীনভাবে সমান মর্যাদা এবং অধিকার নিয়ে জন্মগ্রহণ করে ড়োবা ঢ়",
    "tamil": "மனிதப் பிறவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர் கொடு கோ கௌ",
    "thai": "มนุษย์ ทั้งหลาย เกิดมา มีอิสระ น้ำ ทำ ที่",
    "japanese": "ガラス の パン が プール で 日本 バス ｶﾞﾗｽ ゞ",
    "emoji": "a 👨\u200d👩\u200d👧 b 👍🏽 c 🇩🇪 d ❤️ e 1️⃣ ﬁne ½ cup ①② ™ … Ａ１ ㎏ ﷺ",
    "korean": (
        "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. 인간은 천부적으로 "
        "이성과 양심을 부여받았으며 서로 형제애의 정신으로 행동하여야 한다."
    ),
    "hebrew": (
        "בְּרֵאשִׁית בָּרָא אֱלֹהִים אֵת הַשָּׁמַיִם וְאֵת הָאָרֶץ׃ וְהָאָרֶץ הָיְתָה תֹהוּ וָבֹהוּ וְחֹשֶׁךְ עַל־פְּנֵי תְהוֹם "
        "וְרוּחַ אֱלֹהִים מְרַחֶפֶת עַל־פְּנֵי הַמָּיִם׃"
    ),
    "arabic": (
        "يُولَدُ جَمِيعُ النَّاسِ أَحْرَارًا مُتَسَاوِينَ فِي الْكَرَامَةِ وَالْحُقُوقِ. وَقَدْ وُهِبُوا عَقْلًا وَضَمِيرًا وَعَلَيْهِمْ أَنْ "
        "يُعَامِلَ بَعْضُهُمْ بَعْضًا بِرُوحِ الإِخَاءِ."
    ),
}
COUNTS = {"train": 160, "dev": 12}


def content(split, count, version):
    """A SQuAD file: the demo's questions; version 2 adds one that has no answer to each text."""
    data = json.loads(demo_data.squad_files(seed=1)[split])
    paragraphs = data["data"][0]["paragraphs"] = data["data"][0]["paragraphs"][:count]
    if version == 2:
        for number, paragraph in enumerate(paragraphs):
            question = {"id": f"{number}-why", "question": "Why?", "answers": []}
            paragraph["qas"].append({**question, "is_impossible": True})
    return data


def write_inputs(folder, version):
    """train.json, dev.json, test.json (without answers) and albert_config.json."""
    for split, count in COUNTS.items():
        file_io.write_json(str(folder / f"{split}.json"), content(split, count, version))
    unlabeled = content("dev", 3, version)
    for paragraph in unlabeled["data"][0]["paragraphs"]:
        for question in paragraph["qas"]:
            del question["answers"]
            question.pop("is_impossible", None)
    file_io.write_json(str(folder / "test.json"), unlabeled)
    config = builders.tiny_config(
        embedding_size=32, hidden_size=64, num_hidden_layers=1, intermediate_size=192,
        max_position_embeddings=64, initializer_range=0.1,
    )  # fmt: skip
    file_io.write_text(str(folder / "albert_config.json"), config.to_json_string())


def write_long_context(folder):
    """squad.json: six texts, of which the second is long enough for several windows."""
    data = content("dev", 6, version=2)
    paragraphs = data["data"][0]["paragraphs"]
    paragraphs[1]["context"] = " ".join(p["context"] for p in paragraphs[1:])
    path = str(folder / "squad.json")
    file_io.write_json(path, data)
    return path


def flags_for(inputs, output_dir, **changes):
    """A short run; `changes` add or replace flags, None leaves one out."""
    values = {
        "output_dir": output_dir, "albert_config_file": inputs / "albert_config.json",
        "spm_model_file": builders.SPM, "train_file": inputs / "train.json",
        "predict_file": inputs / "dev.json", "max_seq_length": 64, "max_query_length": 16,
        "doc_stride": 24, "train_batch_size": 16, "predict_batch_size": 16,
        "learning_rate": 1e-3, "num_train_epochs": 0.25, "save_checkpoints_steps": 5, **changes,
    }  # fmt: skip
    return {name: value for name, value in values.items() if value is not None}


def read_json(path):
    return json.loads(path.read_text(encoding="utf-8"))


# --- questions, windows ------------------------------------------------------------------------


def features_of(tokenizer, examples, length=64, stride=16, query=12, is_training=False, **kwargs):
    """The windows of some examples."""
    return list(
        squad_features.convert_examples_to_features(
            examples,
            tokenizer,
            max_seq_length=length,
            doc_stride=stride,
            max_query_length=query,
            is_training=is_training,
            do_lower_case=tokenizer.do_lower_case,
            **kwargs,
        )
    )


def training_example(text, answer, number=0, question="where is the boat?"):
    """An example whose answer is the first place of `answer` in the text; empty for none."""
    start = text.index(answer) if answer else -1
    return squad_features.SquadExample(
        f"q{number}", question, text, answer, start, is_impossible=not answer
    )
