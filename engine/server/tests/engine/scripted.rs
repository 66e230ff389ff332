//! A fake runner whose steps wait for a word.

use std::sync::mpsc::{Receiver, Sender, channel};

use regatta_core::plan::{StepOutput, StepPlan};
use regatta_core::runner::{ModelRunner, RunnerLimits, StepError, Ticket};
use regatta_core::testing::FakeRunner;

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Run,
    Fail,
    Panic,
    AnswerForNobody,
}

/// Runs one step for each word; once the sender is gone, as many as come.
pub(crate) struct Scripted {
    runner: FakeRunner,
    words: Receiver<Word>,
    word: Word,
}

impl Scripted {
    pub(crate) fn new(runner: FakeRunner) -> (Sender<Word>, Self) {
        let (sender, words) = channel();
        (sender, Self { runner, words, word: Word::Run })
    }
}

impl ModelRunner for Scripted {
    fn limits(&self) -> RunnerLimits {
        self.runner.limits()
    }

    fn submit(&mut self, plan: &StepPlan) -> Result<Ticket, StepError> {
        self.word = self.words.recv().unwrap_or(Word::Run);
        match self.word {
            Word::Fail => Err(StepError { step: plan.step, reason: "a word said so".to_owned() }),
            Word::Panic => panic!("a word said so"),
            Word::Run | Word::AnswerForNobody => self.runner.submit(plan),
        }
    }

    fn collect(&mut self, ticket: Ticket, output: &mut StepOutput) -> Result<(), StepError> {
        self.runner.collect(ticket, output)?;
        if self.word == Word::AnswerForNobody {
            output.sequences.clear();
        }
        Ok(())
    }
}
